"""Index, load and unload as Triton's clients call them, on the store in memory and leases that are renewed by hand."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest

from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.endpoint import Endpoint, PolicyInput
from services.registry.domain.model import VersionState
from services.registry.domain.repository import POOL, RepositoryState
from services.registry.domain.worker import LoadState, Worker, WorkerVersion
from services.registry.drivers.endpoints import Endpoints
from services.registry.drivers.leases import Leases
from services.registry.drivers.placements import Placements
from services.registry.drivers.repository import Repository, Surroundings
from services.registry.ports.store import Transaction
from services.rpc.errors import (
    AbortedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InferplaneError,
    NotFoundError,
    UnavailableError,
)
from services.rpc.names import (
    AliasName,
    EndpointName,
    ModelName,
    PlacementName,
    VersionName,
    WorkerName,
)
from tests.manual_clock import ManualClock
from tests.unit.registry import records

M = ModelName("m")
V1, V2 = (VersionName("m", number) for number in "12")
E = EndpointName("m")


class Routes:
    """Routes that follow at once, and remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[EndpointName, VersionName]] = []

    async def wait_routed(self, endpoint: EndpointName, version: VersionName) -> None:
        self.asked.append((endpoint, version))


@dataclass(slots=True)
class Registry:
    """A repository and what is around it; one worker says what it is told to."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore(first_revision=1))
    clock: ManualClock = field(default_factory=ManualClock)
    routes: Routes = field(default_factory=Routes)
    leases: Leases = field(init=False)
    repository: Repository = field(init=False)

    def __post_init__(self) -> None:
        self.leases = Leases(self.clock)
        around = Surroundings(self.leases, self.clock, self.routes)
        self.repository = Repository(self.store, around, seconds=60)

    async def fill(self) -> None:
        """Versions 1, 2 (newest) and 3 (still uploading) of a model, and a model without versions."""

        async def work(transaction: Transaction) -> None:
            await transaction.put(records.model("m"))
            await transaction.put(records.model("empty"))
            await transaction.put(records.version("m@1", age=3))
            await transaction.put(records.version("m@2", age=2))
            await transaction.put(records.version("m@3", state=VersionState.UPLOADING))
            await transaction.put(records.alias("m@best", "2"))

        await self.store.write(work)

    def report(self, **states: LoadState) -> None:
        """The worker has these versions of m (v1=…) and no others."""
        versions = tuple(
            WorkerVersion(version=VersionName("m", key[1:]), state=state, reason=f"{key} is bad")
            for key, state in states.items()
        )
        self.leases.register(
            Worker(name=WorkerName("w"), pool=POOL, address="unix:/w", versions=versions), 60
        )

    async def endpoint(self) -> Endpoint | None:
        return await self.store.read(lambda view: view.get(Endpoint, E))

    async def states(self) -> dict[str, str]:
        entries = await self.repository.index(ready_only=False)
        return {entry.version.short: entry.state.value for entry in entries}

    async def waiting(self, work: Awaitable[object]) -> "asyncio.Future[object]":
        """Work that has begun and waits for the worker."""
        future = asyncio.ensure_future(work)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not future.done()
        return future


@pytest.fixture
async def registry() -> Registry:
    made = Registry()
    await made.fill()
    made.report()
    return made


async def test_load_returns_when_the_newest_answers(registry: Registry) -> None:
    """The newest complete version is placed, awaited, given an endpoint of the model's name, and routed."""
    loading = await registry.waiting(registry.repository.load(M, None))
    assert await registry.states() == {"m@1": "UNAVAILABLE", "m@2": "LOADING"}
    assert await registry.endpoint() is None
    registry.report(v2=LoadState.PULLING)
    registry.report(v2=LoadState.READY)
    assert await loading == V2
    endpoint = await registry.endpoint()
    assert endpoint is not None
    assert [target.target for target in endpoint.targets] == [V2]
    assert registry.routes.asked == [(E, V2)]
    assert await registry.states() == {"m@1": "UNAVAILABLE", "m@2": "READY"}
    ready = await registry.repository.index(ready_only=True)
    assert [(e.version, e.state) for e in ready] == [(V2, RepositoryState.READY)]
    assert await registry.repository.load(M, None) == V2  # and again: nothing to do


async def test_loading_another_version_moves_its_own_endpoint(registry: Registry) -> None:
    """The endpoint that load made follows what is loaded; the version before stays loaded."""
    registry.report(v1=LoadState.READY, v2=LoadState.READY)
    await registry.repository.load(M, "1")
    await registry.repository.load(M, "2")
    endpoint = await registry.endpoint()
    assert endpoint is not None
    assert [target.target for target in endpoint.targets] == [V2]
    assert await registry.states() == {"m@1": "READY", "m@2": "READY"}


async def test_traffic_that_somebody_set_stays(registry: Registry) -> None:
    """An endpoint of the model's name that load didn't make is neither moved nor deleted."""
    registry.report(v1=LoadState.READY, v2=LoadState.READY)
    await Placements(registry.store, registry.clock).create(PlacementName(POOL, V1))
    policy = PolicyInput(targets=[(str(V1), 1.0)])
    theirs = await Endpoints(registry.store, registry.clock).create(E, policy)
    await registry.repository.load(M, "2")
    assert await registry.endpoint() == theirs
    assert registry.routes.asked == []
    with pytest.raises(FailedPreconditionError, match="in use by endpoints/m") as refused:
        await registry.repository.unload(M, None)
    assert refused.value.reason == "IN_USE"
    assert await registry.states() == {"m@1": "READY", "m@2": "READY"}
    registry.report(v1=LoadState.READY)
    await registry.repository.unload(M, "2")
    assert await registry.states() == {"m@1": "READY", "m@2": "UNAVAILABLE"}


async def test_an_endpoint_by_alias_leads_to_what_is_loaded(registry: Registry) -> None:
    """A target that is an alias of the loaded version is waited for too."""
    registry.report(v2=LoadState.READY)
    await Placements(registry.store, registry.clock).create(PlacementName(POOL, V2))
    policy = PolicyInput(targets=[(str(AliasName("m", "best")), 1.0)])
    await Endpoints(registry.store, registry.clock).create(E, policy)
    await registry.repository.load(M, None)
    assert registry.routes.asked == [(E, V2)]


async def test_unload_returns_when_the_worker_is_rid_of_it(registry: Registry) -> None:
    """Placement and endpoint go at once; the answer comes when no worker has anything of it; again is harmless."""
    registry.report(v2=LoadState.READY)
    await registry.repository.load(M, None)
    unloading = await registry.waiting(registry.repository.unload(M, None))
    assert await registry.endpoint() is None
    assert (await registry.states())["m@2"] == "UNLOADING"
    registry.report(v2=LoadState.DRAINING)
    registry.report()
    await unloading
    assert (await registry.states())["m@2"] == "UNAVAILABLE"
    await registry.repository.unload(M, None)


async def test_unload_does_not_wait_for_what_is_loaded_again(registry: Registry) -> None:
    """Somebody who loads it meanwhile wants it there, which ends the wait."""
    registry.report(v2=LoadState.READY)
    await registry.repository.load(M, None)
    unloading = await registry.waiting(registry.repository.unload(M, None))
    await registry.repository.load(M, None)
    registry.report(v2=LoadState.READY, v1=LoadState.READY)
    await unloading


async def test_a_version_that_fails(registry: Registry) -> None:
    """The worker's reason is the error; no endpoint is made for it."""
    loading = await registry.waiting(registry.repository.load(M, None))
    registry.report(v2=LoadState.FAILED)
    with pytest.raises(FailedPreconditionError, match="failed to load m@2: v2 is bad"):
        await loading
    assert await registry.endpoint() is None
    entries = await registry.repository.index(ready_only=False)
    assert [entry.reason for entry in entries] == ["unloaded", "v2 is bad"]


async def test_unloaded_while_it_loads(registry: Registry) -> None:
    """Who waits for it is told."""
    loading = await registry.waiting(registry.repository.load(M, None))
    await registry.repository.unload(M, None)
    with pytest.raises(AbortedError, match="m@2 was unloaded while it was being loaded"):
        await loading


async def test_without_a_worker(registry: Registry) -> None:
    """There is nothing to wait for; the placement stays for the worker that comes."""
    registry.leases.deregister(WorkerName("w"))
    with pytest.raises(UnavailableError, match="no worker of pool default is live"):
        await registry.repository.load(M, None)
    registry.report()
    assert (await registry.states())["m@2"] == "LOADING"


async def test_time_is_bounded(registry: Registry) -> None:
    """A worker that never ends loading, or never lets go, ends the call with what stays true."""
    around = Surroundings(registry.leases, registry.clock, None)
    hasty = Repository(registry.store, around, seconds=0.01)
    with pytest.raises(DeadlineExceededError, match="it stays placed on pool default"):
        await hasty.load(M, None)
    registry.report(v2=LoadState.DRAINING)
    with pytest.raises(DeadlineExceededError, match="models/m is still held by a worker"):
        await hasty.unload(M, None)


@pytest.mark.parametrize(
    ("model", "version", "error", "text"),
    [
        ("n", None, NotFoundError, "models/n does not exist"),
        ("m", "9", NotFoundError, "models/m/versions/9 does not exist"),
        ("m", "3", FailedPreconditionError, "models/m/versions/3 is UPLOADING"),
        ("empty", None, FailedPreconditionError, "models/empty has no complete version"),
    ],
)
async def test_what_can_not_be_loaded(
    registry: Registry, model: str, version: str | None, error: type[InferplaneError], text: str
) -> None:
    """What isn't there, or isn't complete, is named."""
    with pytest.raises(error, match=text):
        await registry.repository.load(ModelName(model), version)


async def test_what_can_not_be_unloaded(registry: Registry) -> None:
    """A model or version that isn't there is named."""
    with pytest.raises(NotFoundError, match="models/n does not exist"):
        await registry.repository.unload(ModelName("n"), None)
    with pytest.raises(NotFoundError, match="models/m/versions/9 does not exist"):
        await registry.repository.unload(M, "9")
