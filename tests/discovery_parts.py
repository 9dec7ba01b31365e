"""A worker that tells and a router that hears, without what lies between: for tests of discovery."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

from services.router.domain.topology import Worker
from services.router.domain.worker_directory import WorkerDirectory
from services.router.ports.feeds import WorkerSink
from services.rpc.names import VersionName, WorkerName
from services.worker.adapters.discovery_client import Identity
from services.worker.domain.counters import Counters
from services.worker.domain.load_state import LoadState
from services.worker.drivers.heartbeat import Heartbeat
from services.worker.ports.discovery import Registration, VersionReport, WorkerReport
from tests.consul_agent import eventually

LEASE = 3.0  # seconds
V1, V2 = VersionName("digits", "1"), VersionName("digits", "2")


class Router:
    """Hears discovery as the router does, and notes each picture that it would publish."""

    def __init__(self, kept: float) -> None:
        """`kept`: seconds that its own directory keeps workers after a return; no time passes in it."""
        self.directory = WorkerDirectory(lease=kept)
        self.is_connected = False
        self.pictures: list[tuple[str, ...]] = []
        self.told = 0
        self.losses = 0

    def hear_discovery(self, workers: Sequence[Worker]) -> None:
        self.is_connected = True
        self.told += 1
        self.directory.hear(workers, 0.0)
        self.pictures.append(tuple(worker.name for worker in self.workers))

    def lose_discovery(self) -> None:
        self.is_connected = False
        self.losses += 1
        self.directory.lose()

    @property
    def workers(self) -> tuple[Worker, ...]:
        return self.directory.live(0.0)

    @property
    def names(self) -> list[str]:
        return [worker.name.removeprefix("workers/") for worker in self.workers]


@asynccontextmanager
async def heard(
    follow: Callable[[WorkerSink], Coroutine[None, None, None]], kept: float = 0.0
) -> AsyncIterator[Router]:
    """A router that has heard discovery."""
    router = Router(kept)
    task = asyncio.create_task(follow(router))
    try:
        await eventually(lambda: router.is_connected, "discovery is heard")
        yield router
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def beating(
    registration: Registration, report: WorkerReport, lease: float = LEASE
) -> AsyncIterator[Heartbeat]:
    """A worker that renews its lease, and leaves without a word."""
    heartbeat = Heartbeat(lambda: report, lease / 5)
    task = asyncio.create_task(heartbeat.run(registration))
    try:
        async with asyncio.timeout(60):
            await heartbeat.announce()
        yield heartbeat
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def report(*ready: VersionName, draining: bool = False, calls: int = 0) -> WorkerReport:
    counters = Counters(succeeded=calls)
    versions = [VersionReport(name, LoadState.READY, "", counters) for name in ready]
    return WorkerReport(draining=draining, in_flight=calls, versions=versions)


def identity(name: str, pool: str = "default") -> Identity:
    """Of a worker on a socket."""
    return Identity(
        name=WorkerName(name),
        pool=pool,
        zone="a",
        address=f"unix:/run/{name}.sock",
        pid=1,
        release="0.1.0",
        metrics_address="",
        start_ns=1_700_000_000_000_000_000,
    )
