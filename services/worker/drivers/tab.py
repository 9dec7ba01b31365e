"""What one request runs up from its admission to its end: a row of usage, and what was set aside for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from services.rpc.errors import InferplaneError, Kind
from services.worker.domain.caller import Caller
from services.worker.domain.request_use import RequestUse
from services.worker.domain.usage_row import Ended, Opened, Outcome
from services.worker.ports.allowance import Need, Reservation
from services.worker.ports.usage import Slot, UsageJournal

_OUTCOMES = {
    Kind.CANCELLED: Outcome.CANCELLED,
    Kind.DEADLINE_EXCEEDED: Outcome.DEADLINE,
}


@dataclass(frozen=True, slots=True)
class CallMark:
    """What tells a request of a call apart."""

    caller: Caller
    request_id: bytes  # 16
    attempt: int = 1  # Envoy's count
    part: int = 0  # of a stream of requests
    size: int = 0  # bytes of the request
    deadline: float | None = None  # of the monotonic clock


class Tab:
    """Of one request; `open`, then `deliver` as often as need be, then `close`. Or `refuse`, and nothing was.

    What it says it has written it has written so that another process finds it.
    """

    __slots__ = (
        "_began",
        "_deadline",
        "_journal",
        "_need",
        "_reservation",
        "_size",
        "_slot",
        "tokens",
        "use",
    )

    def __init__(self, journal: UsageJournal, reservation: Reservation, need: Need) -> None:
        """What the request needs has been set aside."""
        self.use = RequestUse()
        self.tokens = 0  # of output, delivered
        self._size = 0
        self._journal = journal
        self._reservation = reservation
        self._need = need
        self._slot: Slot | None = None

    def __enter__(self) -> Self:
        """Around all of it: closed at the end."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def open(self, subject: int, mark: CallMark) -> None:
        """It is admitted. Raises UnavailableError while nothing can be counted."""
        need = self._need
        self._began, self._deadline = time.monotonic(), mark.deadline
        self._slot = self._journal.open(
            Opened(
                mark.request_id,
                subject,
                mark.part,
                mark.attempt,
                need.input_tokens,
                need.rows,
                mark.size,
            )
        )

    def refuse(self) -> None:
        """It was refused at the door after all."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._journal.cancel(slot)
            self._reservation.release()

    def deliver(self, tokens: int, size: int) -> None:
        """So many more tokens and bytes are about to be handed to the edge."""
        if self._slot is not None:
            self.tokens += tokens
            self._size += size
            self._journal.deliver(self._slot, self.tokens, self._size)

    def close(self, error: BaseException | None, told: bytes = b"") -> None:
        """It has ended: with its last delivery, or with this error. Nothing if it has ended before."""
        slot, self._slot = self._slot, None
        if slot is None:
            return
        now, use, need = time.monotonic(), self.use, self._need
        outcome = outcome_of(error)
        if outcome is Outcome.CANCELLED and self._deadline is not None and now >= self._deadline:
            outcome = Outcome.DEADLINE  # callers reset a call when its time is over
        self._journal.end(
            slot,
            Ended(
                int((now - self._began) * 1e9),
                outcome,
                use.queue_ns,
                use.compute_ns,
                use.cached_tokens,
                self.tokens,
                self._size,
                use.from_cache,
                use.preemptions,
            ),
            told,
        )
        self._reservation.settle(
            Need(
                input_tokens=need.input_tokens,
                cached_tokens=use.cached_tokens,
                output_tokens=self.tokens,
                rows=need.rows,
                compute_seconds=use.compute_ns / 1e9,
            )
        )

    def stop_after(self) -> int | None:
        """Output tokens after which it must end; None: nothing says so."""
        return self._reservation.stop_after()

    def headers(self) -> Sequence[tuple[str, str]]:
        """What the answer tells of budgets."""
        return self._reservation.trailers()


class NoTab:
    """Where nothing is counted."""

    __slots__ = ()
    use = None
    tokens = 0

    def __enter__(self) -> Self:
        """Nothing to close."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Nothing to close."""

    def refuse(self) -> None:
        """Nothing was opened."""

    def deliver(self, tokens: int, size: int) -> None:
        """Nobody counts."""

    def close(self, error: BaseException | None, told: bytes = b"") -> None:
        """Nobody counts."""

    def stop_after(self) -> int | None:
        """Nothing ends early."""
        return None

    def headers(self) -> Sequence[tuple[str, str]]:
        """Nothing to tell."""
        return ()


NO_TAB = NoTab()
AnyTab: TypeAlias = Tab | NoTab


async def there(entered: AnyTab | Awaitable[AnyTab]) -> AnyTab:
    """The tab, once it may be run up."""
    return await entered if isinstance(entered, Awaitable) else entered


def outcome_of(error: BaseException | None) -> Outcome:
    """Of a request that ended with this error; None: with an answer."""
    if error is None:
        return Outcome.OK
    if isinstance(error, InferplaneError):
        return _OUTCOMES.get(error.kind, Outcome.FAILED)
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return Outcome.CANCELLED
    return Outcome.FAILED
