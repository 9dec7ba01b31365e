"""Shows texts of language models on a terminal: as they come, or when they are there."""

import sys
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass

from inferplane.generation.v1 import generation_pb2, generation_service_pb2

from services.cli.adapters import generation
from services.cli.adapters.terminal import Terminal

Pieces = AsyncIterable[generation_service_pb2.GenerateStreamResponse]
_KEPT = frozenset("\n\t")


def printable(text: str) -> str:
    """The text without control characters: a model must not move the cursor or rename the window."""
    return "".join(c for c in text if c in _KEPT or (c >= " " and not "\x7f" <= c <= "\x9f"))


@dataclass(slots=True)
class ShownText:
    """A text that is being shown; what is there of it stays there if it is broken off."""

    text: str = ""
    told: str = ""  # how fast it was made; empty until the end


class TextScreen:
    """Writes to stdout what is the answer, and to stderr what is said about it."""

    def __init__(self, out: Terminal) -> None:
        """Nothing is written yet."""
        self._out = out
        self._at_line_start = True

    async def stream(self, pieces: Pieces, shown: ShownText) -> list[generation_pb2.TokenLogprob]:
        """Write one text as it comes, and remember it in `shown`; returns the logprobs that came with it."""
        logprobs: list[generation_pb2.TokenLogprob] = []
        async for response in pieces:
            for piece in response.pieces:
                self._write(piece.text)
                shown.text += piece.text
                logprobs += piece.logprobs
            if response.HasField("usage"):
                shown.told = generation.pace(response.usage, response.timings, 1).line()
        return logprobs

    def end_line(self) -> None:
        """What comes next begins a line."""
        if not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True

    def response(self, response: generation_service_pb2.GenerateResponse) -> None:
        """Write all texts of an answer."""
        several = len(response.choices) > 1
        for choice in response.choices:
            if several:
                self._write(f"--- {choice.index}\n")
            self._write(choice.text)
            self.end_line()
            self.logprobs(choice.logprobs)
        told = generation.pace(response.usage, response.timings, len(response.choices))
        self._out.say(told.line())

    def logprobs(self, logprobs: Sequence[generation_pb2.TokenLogprob]) -> None:
        """A line for each token: how likely it was, and what else could have come."""
        if not logprobs:
            return
        rows = [
            [_quoted(each.token), f"{each.logprob:.4f}", ", ".join(map(_other, each.top))]
            for each in logprobs
        ]
        headers = ["TOKEN", "LOGPROB", "LIKELIEST"]
        if not any(each.top for each in logprobs):
            headers, rows = headers[:2], [row[:2] for row in rows]
        self._out.table(headers, rows)

    def _write(self, text: str) -> None:
        if not text:
            return
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
        self._at_line_start = text.endswith("\n")


def _quoted(token: bytes) -> str:
    return repr(token.decode(errors="backslashreplace"))


def _other(top: generation_pb2.TopLogprob) -> str:
    return f"{_quoted(top.token)} {top.logprob:.4f}"
