"""A request on its way to the session: what is fixed when it is admitted, and whom its end is told."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from services.rpc.errors import InferplaneError
from services.worker.domain.contents import Array
from services.worker.domain.ragged import Lengths
from services.worker.domain.request_options import AnswerFacts
from services.worker.domain.request_use import RequestUse

if TYPE_CHECKING:
    from services.worker.domain.fair_order import Line

Outputs = Mapping[str, Array]
Answer = Outputs | InferplaneError


class RunShare(NamedTuple):
    """What a run was, for the part that each request has in it."""

    started: float  # of the monotonic clock: when it left the queue
    compute_ns: int
    rows: int

    def of(self, rows: int) -> int:
        """Nanoseconds that so many rows took."""
        return self.compute_ns * (rows or 1) // (self.rows or 1)


class BatchSink(Protocol):
    """Takes the answers of many requests at once. Both calls may admit and let go requests."""

    def answered(self, batch: Sequence[Waiting], outputs: Outputs, run: RunShare) -> None:
        """The requests' rows lie below each other in `outputs`; skip those without a caller."""
        ...

    def ended(self, waiting: Waiting, answer: Answer) -> None:
        """One request ended by itself."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Terms:
    """What requests of one kind have in common; requests that are alike share one."""

    outputs: tuple[str, ...]
    rows: int
    size: int  # bytes of its inputs
    group: Hashable  # with whom it may share a run; None: computed alone
    lengths: Lengths = ()  # of its padded axes
    area: int = 0  # cells of a row that its lengths give
    level: int = 0  # of priority; 0 goes first
    tenant: str = ""
    timeout: float = 0.0  # seconds that it may wait; 0: its deadline alone

    @property
    def places(self) -> int:
        """What it takes up in the queue: its rows; without rows one, or their number would have no bound."""
        return self.rows or 1


@dataclass(slots=True, eq=False)
class Waiting:
    """One request from its admission to its end; equal only to itself."""

    terms: Terms
    feeds: Mapping[str, Array]
    arrived: float
    deadline: float | None = None  # of the caller
    deliver: Callable[[Answer], None] | None = None  # whom to tell; None: the caller has gone
    sink: BatchSink | None = None  # told in place of `deliver`, of whole batches
    caller: Any = None  # the sink's own; None: the caller has gone
    facts: AnswerFacts | None = None
    use: RequestUse | None = None
    line: Line | None = None  # where it waits; None: it doesn't
    tag: float = 0.0  # its place in the fair order, then its number
    number: int = 0

    @property
    def rows(self) -> int:
        """Rows of its inputs."""
        return self.terms.rows

    @property
    def outputs(self) -> tuple[str, ...]:
        """Those that are wanted."""
        return self.terms.outputs

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still listens."""
        return self.deliver is not None or self.caller is not None

    def forget(self) -> None:
        """The caller has gone; nobody is told any more."""
        self.deliver = None
        self.caller = None

    def end(self, answer: Answer) -> None:
        """Tell the caller, once; nothing if it has been told or has gone."""
        deliver, self.deliver = self.deliver, None
        if deliver is not None:
            deliver(answer)
        elif self.caller is not None:
            assert self.sink is not None
            self.sink.ended(self, answer)
            self.caller = None
