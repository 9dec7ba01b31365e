"""Computes one batch: joins, runs the session, takes apart; each request gets an answer or an error."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.rpc.errors import (
    CancelledError,
    DeadlineExceededError,
    InferplaneError,
    ResourceExhaustedError,
)
from services.worker.domain.batch import Answer, Outputs, Waiting
from services.worker.domain.batch_arrays import (
    RowCountError,
    check_rows,
    chunks,
    join,
    join_outputs,
    split,
)
from services.worker.domain.computed_batch import ComputedBatch
from services.worker.domain.contents import Array
from services.worker.domain.progress import Progress
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import Signature
from services.worker.ports.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What computes, and how it may be used."""

    sessions: Sequence[Session]  # one for each instance; it may be the same one
    signature: Signature
    batched: bool  # whether requests may share a run
    steady: bool = False  # whether rows alone say how long a run takes
    padding: Padding | None = None  # how requests of unlike lengths share a run
    max_rows: int = 1  # of a run
    cpus: Sequence[tuple[int, ...]] = ()  # that instances' threads are bound to; none: any


@dataclass(slots=True)
class Ran:
    """What became of a batch."""

    outputs: Outputs | None = None  # of all its rows, for one sink; else there are `answers`
    answers: Sequence[Answer] = ()
    runs: list[ComputedBatch] = field(default_factory=list)
    area: int = 0  # of the padded batch, as the queue counts; 0: nothing was padded

    @property
    def compute_ns(self) -> int:
        """Time that it took to compute."""
        return sum(run.compute_ns for run in self.runs)


class BatchRun:
    """One batch on one instance."""

    def __init__(
        self, model: Model, progress: Progress, batch: Sequence[Waiting], started: float
    ) -> None:
        """Assign only.

        Args:
            model: what computes.
            progress: is told of each run.
            batch: requests of one group; not empty.
            started: when it left the queue.
        """
        self._model = model
        self._progress = progress
        self._batch = batch
        self._started = started
        self._ran = Ran()

    def run(self, session: Session) -> Ran:
        """One answer for each request, in order."""
        batch, ran = self._batch, self._ran
        if len(batch) > 1 or self._is_whole(batch[0]):
            try:
                self._run_together(session)
            except (InferplaneError, MemoryError) as error:
                if len(batch) == 1:
                    ran.answers = [_as_answer(error)]
                    return ran
                # One request spoils the batch: alone, only that one fails.
            except (RowCountError, ValueError):
                pass  # alone its rows need not be counted
            else:
                return ran
        ran.answers = [self._run_single(session, waiting) for waiting in batch]
        return ran

    def _is_whole(self, waiting: Waiting) -> bool:
        """Whether a single request may go the way of a batch, whose rows are counted."""
        return waiting.sink is not None and waiting.terms.group is not None and self._fits(waiting)

    def _fits(self, waiting: Waiting) -> bool:
        return waiting.terms.rows <= self._model.max_rows

    def _run_together(self, session: Session) -> None:
        batch, ran = self._batch, self._ran
        rows = [request.terms.rows for request in batch]
        began = time.perf_counter_ns()
        padding = self._model.padding if self._is_uneven() else None
        given = [request.feeds for request in batch]
        feeds = join(given) if padding is None else padding.join(given)
        joined = time.perf_counter_ns()
        outputs = self._run(session, feeds, wanted_outputs(self._model.signature, batch))
        inferred = time.perf_counter_ns()
        check_rows(outputs, sum(rows))
        if padding is not None:
            own = padding.split(outputs, given)
            ran.answers = [
                {name: answer[name] for name in request.terms.outputs}
                for request, answer in zip(batch, own, strict=True)
            ]
        elif batch[0].sink is not None and self._has_one_sink():
            ran.outputs = outputs
        else:
            ran.answers = split(outputs, rows, [request.terms.outputs for request in batch])
        times = (joined - began, inferred - joined, time.perf_counter_ns() - inferred)
        self._note(feeds, times, batch, sum(rows))

    def _is_uneven(self) -> bool:
        first = self._batch[0].terms.lengths
        return any(request.terms.lengths != first for request in self._batch)

    def _has_one_sink(self) -> bool:
        sink = self._batch[0].sink
        return all(request.sink is sink for request in self._batch)

    def _note(
        self,
        feeds: Mapping[str, Array],
        times: tuple[int, int, int],
        first_of: Sequence[Waiting],
        rows: int,
    ) -> None:
        """Keep what a run was; `first_of`: requests that it was the first run for."""
        cells = padded = 0
        padding = self._model.padding
        if padding is not None:
            cells = padding.cells(feeds)
            if len(first_of) > 1:
                padded = cells - sum(padding.cells(request.feeds) for request in first_of)
            self._ran.area += padding.area(padding.lengths(feeds)) * rows
        self._ran.runs.append(
            ComputedBatch(
                rows=rows,
                waits=[self._started - request.arrived for request in first_of],
                input_ns=times[0],
                infer_ns=times[1],
                output_ns=times[2],
                cells=cells,
                padded_cells=padded,
            )
        )

    def _run_single(self, session: Session, waiting: Waiting) -> Answer:
        try:
            return self._run_chunks(session, waiting)
        except (InferplaneError, MemoryError) as error:
            return _as_answer(error)

    def _run_chunks(self, session: Session, waiting: Waiting) -> Outputs:
        terms = waiting.terms
        if terms.group is None:
            return self._run_piece(session, waiting, waiting.feeds, is_first=True)
        pieces = chunks(waiting.feeds, terms.rows, self._model.max_rows)
        try:
            return join_outputs(
                [
                    self._run_piece(session, waiting, piece, is_first=index == 0)
                    for index, piece in enumerate(pieces)
                ]
            )
        except ValueError:  # shapes that depend on the data don't fit below each other
            return self._run(session, waiting.feeds, terms.outputs)

    def _run_piece(
        self, session: Session, waiting: Waiting, piece: Mapping[str, Array], *, is_first: bool
    ) -> Outputs:
        """A large request is given up between its pieces once nobody wants it any more."""
        if not waiting.is_wanted:
            raise CancelledError("the caller has gone")
        if waiting.deadline is not None and waiting.deadline <= time.monotonic():
            raise DeadlineExceededError("the deadline passed between parts of the request")
        began = time.perf_counter_ns()
        outputs = self._run(session, piece, waiting.terms.outputs)
        rows = next(iter(piece.values())).shape[0] if waiting.terms.group is not None else 1
        times = (0, time.perf_counter_ns() - began, 0)
        self._note(piece, times, [waiting] if is_first else [], rows)
        return outputs

    def _run(self, session: Session, feeds: Mapping[str, Array], names: Sequence[str]) -> Outputs:
        run = self._progress.begin(time.monotonic())
        try:
            return session.run(feeds, names)
        finally:
            self._progress.end(run, time.monotonic())


def _as_answer(error: InferplaneError | MemoryError) -> InferplaneError:
    if isinstance(error, InferplaneError):
        return error
    return ResourceExhaustedError("no memory for this request", reason="OUT_OF_MEMORY")


def wanted_outputs(signature: Signature, batch: Sequence[Waiting]) -> tuple[str, ...]:
    """The outputs that at least one request wants, in the model's order."""
    first = batch[0].terms.outputs
    for request in batch:
        if request.terms.outputs != first:
            names = {name for request in batch for name in request.terms.outputs}
            return tuple(spec.name for spec in signature.outputs if spec.name in names)
    return first
