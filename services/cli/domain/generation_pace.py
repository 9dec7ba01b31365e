"""How fast a text was made, from what the server measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPace:
    """Counts and times of one request; seconds."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt's
    completion_tokens: int  # of all texts
    texts: int
    first_token: float  # from arrival
    total: float

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first ones, by the time they took; None if there was nothing to measure."""
        seconds = self.total - self.first_token
        count = self.completion_tokens - self.texts
        return count / seconds if count > 0 and seconds > 0 else None

    def line(self) -> str:
        """All of it in a line."""
        rate = self.tokens_per_second
        speed = "" if rate is None else f", {rate:.0f} tok/s"
        cached = f", {self.cached_tokens} of them cached" if self.cached_tokens else ""
        return (
            f"{_count(self.completion_tokens)}{speed}; first after {self.first_token * 1000:.0f} ms;"
            f" prompt {_count(self.prompt_tokens)}{cached}"
        )


def _count(tokens: int) -> str:
    return f"{tokens} token" if tokens == 1 else f"{tokens} tokens"
