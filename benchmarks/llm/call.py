"""One streamed completion: what is asked, and what came when."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt and how many tokens are to follow it."""

    prompt: str
    prompt_tokens: int
    max_tokens: int = 64
    due: float = 0.0  # open loop: seconds after the begin

    def body(self) -> bytes:
        """The request in OpenAI's shape, greedy, of exactly so many tokens."""
        return orjson.dumps(
            {
                "model": "smollm2",
                "prompt": self.prompt,
                "max_tokens": self.max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )


@dataclass(slots=True, kw_only=True)
class Answer:
    """Times are perf_counter's. Lateness of an open loop counts: `began` is when the call was due."""

    asked: Asked
    began: float
    pieces: list[float] = field(default_factory=list)  # when each came that has text
    text: str = ""
    tokens: int = 0  # as the server says
    ended: float = 0.0
    error: str = ""

    @property
    def first(self) -> float:
        """Seconds to the first text."""
        return self.pieces[0] - self.began

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces of text."""
        return [after - before for before, after in pairwise(self.pieces)]

    def take(self, event: bytes, now: float) -> None:
        """Read what one event's `data:` says."""
        if event == b"[DONE]":
            return
        said = orjson.loads(event)
        if "error" in said:
            self.error = str(said["error"])
            return
        for choice in said.get("choices", ()):
            if text := choice.get("text"):
                self.text += text
                self.pieces.append(now)
        if usage := said.get("usage"):
            self.tokens = usage["completion_tokens"]

    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.error:
            return self.error
        if self.tokens != self.asked.max_tokens:
            return f"{self.tokens} tokens instead of {self.asked.max_tokens}"
        return "" if self.pieces else "no text"
