"""A version that writes text: what servicers need of a loaded language model."""

import time
from dataclasses import dataclass

from services.worker.domain.assignment import VersionSpec
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.call_outcome import call_outcome
from services.worker.drivers.traffic import Traffic
from services.worker.drivers.version_usage import NO_USAGE, AnyUsage
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.ports.engine import TextEngine
from services.worker.llm.ports.tokenizer import ChatTemplate, Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class ServedText:
    """Equal only to itself."""

    spec: VersionSpec
    engine: TextEngine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    shape: ModelShape
    context_length: int  # tokens of prompt and answer together
    max_output_tokens: int  # of all answers of a request
    statistics: VersionStatistics
    traffic: Traffic
    usage: AnyUsage = NO_USAGE

    def begin(self) -> float:
        """A call begins; give what this returns to `end`."""
        self.traffic.begin()
        return time.monotonic()

    def end(self, started: float, error: BaseException | None) -> None:
        """The call ended: with its last piece, or with this error."""
        self.traffic.end()
        self.statistics.called(call_outcome(error), time.monotonic() - started)
