"""Two registries on one Postgres: one serves, the other takes over, and nothing is lost or done twice."""

import asyncio
import itertools
import signal
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc
from inferplane.discovery.v1 import discovery_service_pb2
from inferplane.registry.v1 import model_pb2, model_service_pb2, watch_service_pb2

from services.rpc.tcp_ports import free_port
from tests.integration.registry.client import MODEL, Client, refused
from tests.integration.registry.registry_process import end, launch
from tests.postgres import PostgresServer

T = TypeVar("T")

SERVING = health_pb2.HealthCheckResponse.SERVING
SECONDS = 60
ARTIFACT = "models/artifact"


class Registry:
    """One of the processes."""

    def __init__(self, folder: Path, name: str, store_url: str) -> None:
        self._folder = folder
        self._address = f"unix:{folder}/{name}.sock"
        self._store_url = store_url
        self._metrics = f"127.0.0.1:{free_port()}"
        self.process: asyncio.subprocess.Process | None = None
        self.client = Client(self._address)

    async def start(self) -> None:
        """Start it; it listens when this returns."""
        self.process = await launch(
            self._folder,
            registry_address=self._address,
            store_url=self._store_url,
            metrics_address=self._metrics,
            takeover_seconds="2",
        )
        async with asyncio.timeout(SECONDS):
            await self.client.channel.channel_ready()

    async def serves(self) -> bool:
        """What it says of its health; False if it isn't there."""
        stub = health_pb2_grpc.HealthStub(self.client.channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest())
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == SERVING)

    async def until_serving(self) -> None:
        """Wait until it says that it serves."""
        stub = health_pb2_grpc.HealthStub(self.client.channel)
        async with asyncio.timeout(SECONDS):
            async for answer in stub.Watch(health_pb2.HealthCheckRequest()):
                if answer.status == SERVING:
                    return

    async def active(self) -> bool:
        """What its metrics say."""
        page = await asyncio.to_thread(self._read_metrics)
        (value,) = (
            line.split()[1] for line in page if line.startswith("inferplane_registry_active ")
        )
        return float(value) == 1

    def _read_metrics(self) -> list[str]:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=SECONDS) as page:
            return str(page.read().decode()).splitlines()

    async def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal and wait for the end."""
        assert self.process is not None
        process, self.process = self.process, None
        return await end(process, number)

    async def ended(self) -> tuple[int, str]:
        """Wait for its end without asking for it."""
        assert self.process is not None
        process, self.process = self.process, None
        async with asyncio.timeout(SECONDS):
            _, said = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


@asynccontextmanager
async def two(folder: Path, store_url: str) -> AsyncIterator[tuple[Registry, Registry]]:
    """The first one serves, the second one stands by."""
    registries = tuple(Registry(folder, name, store_url) for name in "ab")
    try:
        await registries[0].start()
        await registries[0].until_serving()
        await registries[1].start()
        yield registries[0], registries[1]
    finally:
        for registry in registries:
            await registry.client.channel.close()
            if registry.process is not None:
                await registry.end(signal.SIGKILL)


async def create(client: Client, name: str) -> None:
    """Make a model; that it is there already is as good, as the call may be a repetition."""
    request = model_service_pb2.CreateModelRequest(model_id=name, model=model_pb2.Model())
    try:
        await client.models.CreateModel(request)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


async def models(client: Client) -> set[str]:
    request = model_service_pb2.ListModelsRequest(page_size=1000)
    return {model.name for model in (await client.models.ListModels(request)).models} - {ARTIFACT}


async def anywhere(registries: tuple[Registry, ...], call: Callable[[Client], Awaitable[T]]) -> T:
    """Call whichever registry serves, as clients do that choose by health."""
    async with asyncio.timeout(SECONDS):
        for registry in itertools.cycle(registries):
            try:
                return await call(registry.client)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.02)  # both may be away for a moment
    raise AssertionError


class Load:
    """Writes models one after another and remembers those that were acknowledged; watches them too."""

    def __init__(self, registries: tuple[Registry, ...]) -> None:
        self._registries = registries
        self.acknowledged: list[str] = []
        self.seen: list[str] = []
        self.revisions: list[int] = [0]
        self._progress = asyncio.Condition()

    async def write(self, writer: int) -> None:
        for number in itertools.count():
            name = f"m{writer}-{number}"
            await anywhere(self._registries, partial(create, name=name))
            await self._note(self.acknowledged, f"models/{name}")

    async def watch(self) -> None:
        """Follow, wherever it can be followed, from the revision that was complete last."""
        for registry in itertools.cycle(self._registries):
            request = watch_service_pb2.WatchRequest(
                after_revision=self.revisions[-1], kinds=[watch_service_pb2.RESOURCE_KIND_MODEL]
            )
            try:
                async for news in registry.client.watches.Watch(request):
                    for change in news.changes:
                        if change.name != ARTIFACT:  # it changes as its version becomes ready
                            await self._note(self.seen, change.name)
                    if news.synced:
                        self.revisions.append(news.revision)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.02)

    async def _note(self, where: list[str], name: str) -> None:
        async with self._progress:
            where.append(name)
            self._progress.notify_all()

    async def goes_on(self, more: int = 20) -> None:
        """Wait until so many more writes were acknowledged."""
        goal = len(self.acknowledged) + more
        async with asyncio.timeout(SECONDS), self._progress:
            await self._progress.wait_for(lambda: len(self.acknowledged) >= goal)

    async def has_seen(self, names: set[str]) -> None:
        """Wait until the watcher has seen these."""
        async with asyncio.timeout(SECONDS), self._progress:
            await self._progress.wait_for(lambda: names <= set(self.seen))


@asynccontextmanager
async def load_on(registries: tuple[Registry, ...]) -> AsyncIterator[Load]:
    """Three writers and a watcher; at the end all is there that was acknowledged, and was seen once."""
    load = Load(registries)
    writing = [asyncio.create_task(load.write(writer)) for writer in range(3)]
    watching = asyncio.create_task(load.watch())
    try:
        await load.goes_on()
        yield load
    finally:
        for task in writing:
            task.cancel()
        await asyncio.wait(writing)
    assert all(task.cancelled() for task in writing)
    there = await anywhere(registries, models)
    assert set(load.acknowledged) <= there
    await load.has_seen(there)
    seen = sorted(load.seen)
    assert seen == sorted(set(seen))  # each change once: none twice, none missed
    assert set(seen) <= await anywhere(registries, models)  # a cancelled write may come since
    assert load.revisions == sorted(load.revisions)
    watching.cancel()
    await asyncio.wait([watching])
    assert watching.cancelled()


async def test_one_stands_by(folder: Path, postgres_url: str) -> None:
    """1. it refuses calls in words that clients understand; 2. it ends at SIGTERM; 3. it takes over at the other's.

    Metrics say at each point which one is active.
    """
    async with two(folder, postgres_url) as (first, second), load_on((first, second)) as load:
        assert not await second.serves()
        assert await first.active()
        assert not await second.active()
        refusal = await refused(create(second.client, "m"))
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        assert refusal.reason == "STANDBY"
        assert refusal.retry
        lists = second.client.discovery.ListWorkers(discovery_service_pb2.ListWorkersRequest())
        assert (await refused(lists)).reason == "STANDBY"
        code, said = await second.end(signal.SIGTERM)
        assert code == 0
        assert "Traceback" not in said
        await second.start()
        code, said = await first.end(signal.SIGTERM)
        assert code == 0
        assert "Traceback" not in said
        await second.until_serving()
        assert await second.active()
        await load.goes_on()


async def test_a_killed_one_is_replaced(folder: Path, postgres_url: str) -> None:
    """1. the one that serves is killed under load, 2. the other takes over, 3. the same again the other way round."""
    async with two(folder, postgres_url) as (first, second), load_on((first, second)) as load:
        await first.client.push("artifact@1")
        await load.goes_on()
        await first.end(signal.SIGKILL)
        await second.until_serving()
        await load.goes_on()
        await first.start()
        assert not await first.serves()
        await second.end(signal.SIGKILL)
        await first.until_serving()
        await load.goes_on()
        got = await first.client.download("models/artifact/versions/1", "model.onnx")
        assert got == MODEL


async def test_one_that_was_frozen_writes_nothing(folder: Path, postgres_url: str) -> None:
    """1. frozen, it loses its turn; 2. a call lies before it; 3. thawed, it refuses that call and ends to stand by."""
    async with two(folder, postgres_url) as (first, second):
        await create(first.client, "before")
        first.signal(signal.SIGSTOP)
        late = [asyncio.create_task(create(first.client, f"late{n}")) for n in range(5)]
        await second.until_serving()
        await create(second.client, "after")
        first.signal(signal.SIGCONT)
        async with asyncio.timeout(SECONDS):
            ends = await asyncio.gather(*late, return_exceptions=True)
        for end_of_call in ends:
            assert isinstance(end_of_call, grpc.aio.AioRpcError)
            assert end_of_call.code() is grpc.StatusCode.UNAVAILABLE
        code, said = await first.ended()
        assert code == 1
        assert "another registry has taken over" in said
        assert "Traceback" not in said
        assert await models(second.client) == {"models/before", "models/after"}
        await first.start()
        assert not await first.serves()


async def test_a_restart_of_postgres_is_outlived(
    folder: Path, own_postgres: PostgresServer
) -> None:
    """Killed and started again, Postgres has all that was acknowledged, and one of the two goes on."""
    async with two(folder, own_postgres.url) as (first, second), load_on((first, second)) as load:
        own_postgres.kill()
        await asyncio.to_thread(own_postgres.start)
        await load.goes_on()
        assert await first.serves() != await second.serves()


async def test_without_postgres_nobody_serves(folder: Path, own_postgres: PostgresServer) -> None:
    """Without its database the one that served ends after a while; the other waits, and serves when it is back."""
    async with two(folder, own_postgres.url) as (first, second):
        await create(first.client, "m")
        own_postgres.stop()
        refusal = await refused(create(first.client, "n"))
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        code, said = await first.ended()
        assert code == 1
        assert "Traceback" not in said
        assert not await second.serves()
        await asyncio.to_thread(own_postgres.start)
        await second.until_serving()
        assert await models(second.client) == {"models/m"}


async def test_calls_hear_of_a_database_that_stands_still(
    folder: Path, own_postgres: PostgresServer
) -> None:
    """Postgres is frozen under calls: they hear UNAVAILABLE, and are not just cut off."""
    async with two(folder, own_postgres.url) as (first, _):
        await create(first.client, "m")
        server = psutil.Process(own_postgres.pid)
        frozen = [server, *server.children()]
        for process in frozen:
            process.suspend()
        try:
            calls = [asyncio.create_task(refused(create(first.client, f"n{n}"))) for n in range(5)]
            async with asyncio.timeout(SECONDS):
                refusals = await asyncio.gather(*calls)
        finally:
            for process in frozen:
                process.resume()
        assert {refusal.code for refusal in refusals} == {grpc.StatusCode.UNAVAILABLE}
        assert {refusal.reason for refusal in refusals} == {"SUPERSEDED"}
