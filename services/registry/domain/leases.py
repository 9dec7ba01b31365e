"""The table of leases: who is alive until when. Plain values; `now` is an argument."""

from dataclasses import dataclass
from datetime import datetime

from services.registry.domain.worker import Worker
from services.rpc.names import WorkerName

SHORTEST_TTL = 1.0  # seconds
LONGEST_TTL = 60.0  # seconds
DEFAULT_TTL = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker and the moment at which it counts as gone."""

    worker: Worker
    ttl: float  # seconds
    deadline: float  # on the clock that gave `now`


class LeaseTable:
    """Leases by worker. Every method that may change what routing needs says whether it did."""

    def __init__(self) -> None:
        self._leases: dict[WorkerName, Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def renew(self, worker: Worker, ttl: float, now: float) -> bool:
        """Begin or renew a lease and replace what is known of the worker."""
        known = self._leases.get(worker.name)
        self._leases[worker.name] = Lease(worker, ttl, now + ttl)
        return known is None or known.worker.routing != worker.routing

    def end(self, name: WorkerName) -> bool:
        """End a lease, if there is one."""
        return self._leases.pop(name, None) is not None

    def expire(self, now: float) -> tuple[Worker, ...]:
        """Remove and return the workers whose lease is over: exactly at the deadline it is."""
        over = [lease.worker for lease in self._leases.values() if lease.deadline <= now]
        for worker in over:
            del self._leases[worker.name]
        return tuple(over)

    def next_deadline(self) -> float | None:
        """When the next lease ends; None if there is none."""
        return min((lease.deadline for lease in self._leases.values()), default=None)

    def live(self, now: float) -> tuple[Lease, ...]:
        """Leases that are not over, ordered by worker; of several at one address the one that started last.

        A container that is started again has the address of its dead, whose lease runs on for a while.
        """
        alive = [lease for lease in self._leases.values() if lease.deadline > now]
        newest: dict[str, datetime] = {}
        for worker in (lease.worker for lease in alive):
            if worker.start_time is not None:
                other = newest.get(worker.address, worker.start_time)
                newest[worker.address] = max(other, worker.start_time)
        shown = [
            lease
            for lease in alive
            if lease.worker.start_time in {None, newest.get(lease.worker.address)}
        ]
        return tuple(sorted(shown, key=lambda lease: lease.worker.name))
