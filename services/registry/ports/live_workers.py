"""Who is alive, as far as the registry knows."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.registry.domain.worker import Worker
from services.rpc.names import WorkerName


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker and when its lease ends unless renewed."""

    worker: Worker
    expire_time: datetime | None  # None: whoever keeps the lease doesn't say


class LiveWorkers(Protocol):
    """The list of live workers. Called from the event loop; only `run` and `wait_beyond` wait."""

    def __len__(self) -> int: ...

    def live(self) -> list[LiveWorker]:
        """Live workers, ordered by name."""
        ...

    def workers(self) -> list[Worker]:
        """Live workers without the time of their leases."""
        ...

    async def wait_beyond(self, generation: int) -> int:
        """Wait for something that routing needs to change; 0: for the first list. UnavailableError once closed."""
        ...

    def register(self, worker: Worker, ttl: float) -> LiveWorker:
        """Begin or renew a lease. FailedPreconditionError if leases are kept elsewhere."""
        ...

    def deregister(self, name: WorkerName) -> None:
        """End a lease at once, if there is one. FailedPreconditionError if leases are kept elsewhere."""
        ...

    async def run(self) -> None:
        """Keep the list until cancelled."""
        ...

    def close(self) -> None:
        """End all waiting."""
        ...
