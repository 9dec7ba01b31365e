"""Stands before the batcher of a version with state: lets in one request of a sequence at a time, keeps the state."""

import asyncio
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from services.rpc.errors import (
    DeadlineExceededError,
    InferplaneError,
    InvalidArgumentError,
    UnavailableError,
)
from services.worker.domain.assignment import SequenceLimits
from services.worker.domain.batch import Answer, Outputs
from services.worker.domain.contents import shown
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.raw_contents import raw_size
from services.worker.domain.sequence_state import StatePlan
from services.worker.domain.sequences import LineLimits, Sequences, Turn
from services.worker.ports.gate import Deliver, Gate, Ticket


@dataclass(slots=True, eq=False)
class _Held:
    """A request between `admit` and its answer; the ticket of its caller."""

    turn: Turn
    request: InferRequest
    deadline: float | None
    deliver: Deliver | None  # None: told, or gone
    leave_inner: Callable[[], None] | None = None  # the batcher's, once it is there


class SequenceGate:
    """Gate of one version with state; different sequences share batches, requests of one follow each other."""

    def __init__(
        self,
        batcher: Gate,
        plan: StatePlan,
        limits: SequenceLimits,
        line: LineLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Assign only.

        Args:
            batcher: where requests go with their state.
            plan: what state is.
            limits: of all states.
            line: of requests that wait for their turn.
            clock: monotonic seconds.
        """
        self._batcher = batcher
        self._plan = plan
        self._clock = clock
        self.sequences = Sequences(limits, line, plan.first)
        self._held: dict[Turn, _Held] = {}
        self._expiring: asyncio.TimerHandle | None = None

    def move_to(self, batcher: Gate) -> None:
        """From now on requests go there; those that are in the other one end there."""
        self._batcher = batcher

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Ticket:
        """Take a request in. Raises InferplaneError if it is refused at the door."""
        part = request.options.sequence
        if part is None:
            raise InvalidArgumentError.of_field(
                "parameters.sequence_id",
                "missing; allowed: the id of a sequence, since this version keeps state between requests",
            )
        self._plan.check_rows(request.feeds)
        turn = Turn((request.tenant, part.id), part, raw_size(request.feeds.values()))
        held = _Held(turn, request, deadline, deliver)
        if self.sequences.arrive(turn, self._clock()):
            try:
                self._begin(held)
            except InferplaneError:
                self._advance(turn)
                raise
        self._held[turn] = held
        return held

    def leave(self, ticket: Ticket) -> None:
        """The caller has gone. A run that has begun does not change the state any more."""
        held: _Held = ticket
        if held.deliver is None:
            return
        held.deliver = None
        del self._held[held.turn]
        if held.leave_inner is not None:
            held.leave_inner()
        self._advance(held.turn)

    def _begin(self, held: _Held) -> None:
        """Its turn has come. Raises InferplaneError; then the turn is to be ended."""
        now = self._clock()
        if held.deadline is not None and held.deadline <= now:
            raise DeadlineExceededError("the deadline passed before it was the request's turn")
        state = self.sequences.begin(held.turn, now)
        request = held.request
        whole = replace(
            request,
            feeds=self._plan.feeds(request.feeds, state),
            outputs=self._plan.outputs(request.outputs),
        )
        batcher = self._batcher
        try:
            inner = batcher.admit(whole, held.deadline, partial(self._answered, held))
        except InferplaneError as error:
            raise self._unchanged(held.turn, error) from error
        held.leave_inner = partial(batcher.leave, inner)

    def _advance(self, turn: Turn) -> None:
        """A turn is over; begin the next one that can begin."""
        ended: Turn | None = turn
        while ended is not None:
            following = self.sequences.end(ended, self._clock())
            ended = None
            if following is not None:
                held = self._held[following]
                try:
                    self._begin(held)
                except InferplaneError as error:
                    self._tell(held, error)
                    ended = following
        self._expire_later()

    def _answered(self, held: _Held, answer: Answer) -> None:
        if isinstance(answer, InferplaneError):
            self._tell(held, self._unchanged(held.turn, answer))
        else:
            try:
                outputs = self._committed(held, answer)
            except InferplaneError as error:
                self._tell(held, self._unchanged(held.turn, error))
            else:
                self._tell(held, outputs)
        self._advance(held.turn)

    def _committed(self, held: _Held, outputs: Outputs) -> Outputs:
        state = self._plan.following(outputs)
        self.sequences.commit(held.turn, state, self._clock())
        return {name: outputs[name] for name in held.request.outputs}

    def _tell(self, held: _Held, answer: Answer) -> None:
        deliver, held.deliver = held.deliver, None
        del self._held[held.turn]
        assert deliver is not None
        deliver(answer)

    def _unchanged(self, turn: Turn, error: InferplaneError) -> InferplaneError:
        """The error, and what became of the state."""
        if isinstance(error, UnavailableError):  # the version goes, and the state with it
            return error
        sequence = f"sequence {shown(turn.part.id)}"
        begun = self.sequences.has_begun(turn.key)
        what = f"the state of {sequence} is unchanged" if begun else f"{sequence} has not begun"
        return type(error)(
            f"{error.message}; {what}",
            reason=error.reason,
            metadata=error.metadata,
            violations=error.violations,
            retry_after=error.retry_after,
        )

    def expire(self) -> None:
        """Forget sequences that have been idle too long."""
        self.sequences.expire(self._clock())
        self._expire_later()

    def _expire_later(self) -> None:
        """Look again when the next sequence has been idle too long; memory is given back though nobody calls."""
        due = self.sequences.next_expiry()
        if self._expiring is None and due is not None:
            # Weak: the version, once unloaded, is not kept until then.
            self._expiring = asyncio.get_running_loop().call_later(
                max(0.0, due - self._clock()), _expire, weakref.ref(self)
            )


def _expire(gate: "weakref.ref[SequenceGate]") -> None:
    there = gate()
    if there is not None:
        there._expiring = None
        there.expire()
