"""Leases of live workers: ended exactly at their deadline, told to those who watch."""

import asyncio
from datetime import datetime, timedelta

import structlog

from services.registry.domain.leases import Lease, LeaseTable
from services.registry.domain.worker import Worker
from services.registry.ports.live_workers import LiveWorker
from services.rpc.clock import Clock
from services.rpc.names import WorkerName
from services.rpc.pulse import Pulse

_log = structlog.get_logger(__name__)


class Leases:
    """Holds the lease table. Nothing is stored: after a restart workers are back with their next renewal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table = LeaseTable()
        self._pulse = Pulse(
            1
        )  # a watcher begins at 0, so it hears of the workers there are at once
        self._deadlines_changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._table)

    def register(self, worker: Worker, ttl: float) -> LiveWorker:
        """Begin or renew a lease."""
        now = self._clock.monotonic()
        known = len(self._table)
        if self._table.renew(worker, ttl, now):
            self._tell()
        if len(self._table) != known:
            _log.info("worker came", worker=str(worker.name), address=worker.address)
        self._deadlines_changed.set()
        return LiveWorker(worker, self._clock.now() + timedelta(seconds=ttl))

    def deregister(self, name: WorkerName) -> None:
        """End a lease at once, if there is one."""
        if self._table.end(name):
            _log.info("worker went", worker=str(name))
            self._tell()

    def live(self) -> list[LiveWorker]:
        """Live workers, ordered by name."""
        now, wall = self._clock.monotonic(), self._clock.now()
        return [_live_worker(lease, now, wall) for lease in self._table.live(now)]

    def workers(self) -> list[Worker]:
        """Live workers without the time of their leases."""
        return [lease.worker for lease in self._table.live(self._clock.monotonic())]

    async def wait_beyond(self, generation: int) -> int:
        """Wait for something that routing needs to change. UnavailableError once closed."""
        return await self._pulse.wait_beyond(generation)

    async def run(self) -> None:
        """End leases at their deadlines until cancelled."""
        while True:
            self._deadlines_changed.clear()
            for worker in self._table.expire(self._clock.monotonic()):
                _log.warning("lease over", worker=str(worker.name), address=worker.address)
                self._tell()
            await self._clock.wait(self._deadlines_changed, self._table.next_deadline())

    def close(self) -> None:
        """End all waiting."""
        self._pulse.close()

    def _tell(self) -> None:
        self._pulse.tell(self._pulse.value + 1)


def _live_worker(lease: Lease, now: float, wall: datetime) -> LiveWorker:
    return LiveWorker(lease.worker, wall + timedelta(seconds=lease.deadline - now))
