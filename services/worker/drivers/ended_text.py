"""A text that has ended, for those who look at it afterwards."""

from collections.abc import Callable
from dataclasses import dataclass

from services.worker.domain.capture_rule import CaptureRule
from services.worker.ports.text_watch import WatchedCall


@dataclass(frozen=True, slots=True)
class EndedText:
    """Its prompts as tokens, as the engine had them; they become text where somebody looks."""

    call: WatchedCall
    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[str, ...]  # no more of them than anybody looks at
    rule: CaptureRule | None  # by which it is captured

    def tokens(self) -> int:
        """Of all prompts."""
        return sum(map(len, self.prompts))

    def prompts_said(self, most: int) -> list[str]:
        """As people wrote them, without the names of special tokens; `most` characters of each at most."""
        return self._texts(self.call.tokenizer.token_bytes, most)

    def prompts_shown(self, most: int) -> list[str]:
        """As the model read them; `most` characters of each at most."""
        return self._texts(self.call.tokenizer.token_name, most)

    def _texts(self, bytes_of: Callable[[int], bytes], most: int) -> list[str]:
        # A token without bytes or with a part of a character is not more than one.
        return [
            b"".join(map(bytes_of, prompt[:most])).decode("utf-8", "replace")[:most]
            for prompt in self.prompts
        ]
