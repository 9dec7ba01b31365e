"""Sends what was counted to metering, in order, until it is stored: of this worker, and of those that died."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog
import tenacity

from services.worker.domain.usage_row import UsageRows
from services.worker.ports.usage import (
    UsageFolder,
    UsageGapError,
    UsageOutbox,
    UsageRefusedError,
    UsageStore,
    UsageStoreError,
)

_log = structlog.get_logger(__name__)

_MOST_ROWS = 2000  # in one message
_LINGER_SECONDS = 0.1  # so long rows wait for others
_LOOK_SECONDS = 10.0  # between looks for outboxes of workers that died
_LONGEST_BACKOFF = 10.0


@dataclass(slots=True)
class SenderStatistics:
    """Totals since the start."""

    sent: int = 0  # rows that are stored
    failures: int = 0  # attempts
    refused: int = 0  # rows that metering will never take
    lost: int = 0  # rows that the disk lost
    taken_over: int = 0  # outboxes of others
    # Of this worker's own outbox:
    taken: int = 0  # number of the row that is to be sent next
    oldest_ns: int = 0  # when the first that is being sent ended; 0: none is


class UsageSender:
    """Its loop is started by whoever composes it."""

    def __init__(self, store: UsageStore, longest_backoff: float = _LONGEST_BACKOFF) -> None:
        """Assign only."""
        self._store = store
        self._longest_backoff = longest_backoff
        self._wanted: dict[int, int] = {}  # next row to be read, by outbox
        self._own: UsageOutbox | None = None
        self.statistics = SenderStatistics()

    async def run(self, outbox: UsageOutbox, flushed: asyncio.Event) -> None:
        """Send what is counted here, until cancelled."""
        self._own = outbox
        while True:
            flushed.clear()
            await self.drain(outbox)
            await flushed.wait()
            await asyncio.sleep(_LINGER_SECONDS)

    async def rescue(self, folder: UsageFolder, look_seconds: float = _LOOK_SECONDS) -> None:
        """Send what workers left that died, until cancelled."""
        while True:
            for outbox in await asyncio.to_thread(folder.dead):
                self.statistics.taken_over += 1
                await self.drain(outbox)
                await asyncio.to_thread(outbox.remove)
                self._wanted.pop(id(outbox), None)
                _log.info("outbox of a dead worker sent", source=outbox.source)
            await asyncio.sleep(look_seconds)

    async def drain(self, outbox: UsageOutbox) -> None:
        """Send all that is in an outbox now."""
        while (rows := await self._read(outbox)) is not None:
            wanted = self._wanted.get(id(outbox), rows.first)
            if rows.first > wanted:
                self.statistics.lost += rows.first - wanted
                _log.error("rows of usage are lost", first=wanted, count=rows.first - wanted)
                await self._on_disk(partial(outbox.renew, rows.first))
            is_own = outbox is self._own
            if is_own:
                self.statistics.oldest_ns = rows.ended_ns
            await self._send(outbox, rows)
            outbox.passed(rows.next)
            self._wanted[id(outbox)] = rows.next
            if is_own:
                self.statistics.taken, self.statistics.oldest_ns = rows.next, 0

    async def _send(self, outbox: UsageOutbox, rows: UsageRows) -> None:
        """Until all of them are stored."""
        while True:
            try:
                number = await self._record(outbox, rows)
            except UsageGapError as gap:
                _log.warning("metering lost rows", wanted=gap.next, first=outbox.number(rows.first))
                await self._on_disk(partial(outbox.renew, rows.first))
                continue
            except UsageRefusedError as error:
                await self._narrow(outbox, rows, error)
                return
            stored = min(outbox.row(number), rows.next)
            self.statistics.sent += stored - rows.first
            if stored >= rows.next:
                return
            rows = rows.after(stored)

    async def _narrow(self, outbox: UsageOutbox, rows: UsageRows, error: Exception) -> None:
        """One row is enough for all to be refused: find it, and send the others."""
        if len(rows.rows) > 1:
            half = rows.first + len(rows.rows) // 2
            await self._send(outbox, rows.before(half))
            await self._send(outbox, rows.after(half))
            return
        _log.error("metering refuses a row of usage", row=rows.first, reason=str(error))
        self.statistics.refused += 1
        await self._on_disk(partial(outbox.set_aside, rows))
        await self._on_disk(partial(outbox.renew, rows.next))

    async def _on_disk(self, act: Callable[[], None]) -> None:
        """A disk without room ends no worker: it is waited for."""
        async for attempt in self._attempts():
            with attempt:
                act()

    async def _read(self, outbox: UsageOutbox) -> UsageRows | None:
        async for attempt in self._attempts():
            with attempt:
                return await asyncio.to_thread(outbox.read, _MOST_ROWS)
        raise AssertionError("attempts have no end")

    async def _record(self, outbox: UsageOutbox, rows: UsageRows) -> int:
        """The number that the store wants next; it is more than that of the first row."""
        first = outbox.number(rows.first)
        async for attempt in self._attempts():
            with attempt:
                number = await self._store.record(outbox.source, first, rows)
                if number <= first:
                    raise UsageStoreError(f"it wants row {number} and was sent {first}")
                return number
        raise AssertionError("attempts have no end")

    def _attempts(self) -> tenacity.AsyncRetrying:
        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type((UsageStoreError, OSError)),
            wait=tenacity.wait_exponential_jitter(0.1, self._longest_backoff, jitter=0.1),
            before_sleep=self._note_failure,
        )

    def _note_failure(self, state: tenacity.RetryCallState) -> None:
        self.statistics.failures += 1
        assert state.outcome is not None
        if state.attempt_number == 1:
            _log.warning("usage waits", reason=str(state.outcome.exception()))
