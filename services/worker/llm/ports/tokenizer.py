"""Text to tokens and back, and conversations to text."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """A model's own; safe to use from several threads."""

    @property
    def vocabulary_size(self) -> int:
        """Ids are below it."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a text."""
        ...

    def encode(self, text: str, *, special: bool, limit: int | None = None) -> list[int]:
        """Ids of a text; with `special`, those that the model wants at the beginning, too, where they aren't yet.

        Names of special tokens in the text are those tokens (as chat templates need it). Takes long for long texts, but
        frees the GIL.

        Raises InvalidArgumentError if the text is not Unicode, or longer than any text of `limit` tokens; that takes no
        time. There may still be more tokens than that.
        """
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What it stands for: the bytes of all tokens of a text, joined, are its UTF-8. Special ones: none."""
        ...

    def token_name(self, token_id: int) -> bytes:
        """The same, but special ones say their names: what is shown of a single token."""
        ...


class ChatTemplate(Protocol):
    """Writes a conversation out as the model was taught to read it."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
    ) -> str:
        """The text that the assistant's next message continues. `options` are other names the template may use.

        Raises InvalidArgumentError if the template refuses the messages, or takes too long or too much room.
        """
        ...
