"""Watches texts as they are answered: what is known of them goes into their rows of usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.caller import Caller
from services.worker.domain.text_telemetry import TextTelemetry
from services.worker.llm.domain.generation import GenerationRequest, Piece
from services.worker.llm.ports.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCall:
    """Whose text it is."""

    caller: Caller
    request_id: bytes  # 16 bytes
    version: VersionName
    tokenizer: Tokenizer


class TextRecord(Protocol):
    """One call. Used on the event loop; takes microseconds and never raises."""

    def asked(self, requests: Sequence[GenerationRequest]) -> None:
        """What the engine was asked, all of it."""
        ...

    def wrote(self, pieces: Sequence[Piece]) -> None:
        """This goes to the caller now."""
        ...

    def end(self) -> TextTelemetry:
        """The call has ended, in whatever way. Once."""
        ...


class TextWatch(Protocol):
    """Of all calls on this worker. Used on the event loop."""

    def begin(self, call: WatchedCall) -> TextRecord:
        """A call for text begins."""
        ...

    def scores(self, request_id: bytes) -> Mapping[str, float]:
        """Of a text that has ended lately; empty: there are none, or none yet."""
        ...


class NoTextWatch:
    """Nothing is kept of any text but its length."""

    def begin(self, call: WatchedCall) -> TextRecord:  # noqa: ARG002 - see `TextWatch`
        """See `TextWatch`."""
        return Lengths()

    def scores(self, request_id: bytes) -> Mapping[str, float]:  # noqa: ARG002 - see `TextWatch`
        """See `TextWatch`."""
        return {}


class Lengths:
    """Counts characters."""

    def __init__(self) -> None:
        self._input = 0
        self._output = 0

    def asked(self, requests: Sequence[GenerationRequest]) -> None:
        """See `TextRecord`."""
        self._input += sum(request.characters for request in requests)

    def wrote(self, pieces: Sequence[Piece]) -> None:
        """See `TextRecord`."""
        self._output += sum(len(piece.text) for piece in pieces)

    def end(self) -> TextTelemetry:
        """See `TextRecord`."""
        return TextTelemetry(input_characters=self._input, output_characters=self._output)
