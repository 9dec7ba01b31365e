"""Whatever calls come in whatever order: what endpoints name can be served, and nothing refers to nothing."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.catalog import ALL_KINDS, Record, referred_by
from services.registry.domain.endpoint import Endpoint, PolicyInput
from services.registry.domain.model import VersionState
from services.registry.domain.references import check_targets
from services.registry.domain.repository import POOL
from services.registry.domain.worker import LoadState
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.endpoints import Endpoints
from services.registry.drivers.leases import Leases
from services.registry.drivers.lookup import resolve
from services.registry.drivers.models import Aliases, Models
from services.registry.drivers.placements import Placements
from services.registry.drivers.repository import Repository, Surroundings
from services.registry.drivers.versions import Versions
from services.registry.ports.store import Transaction, View
from services.rpc.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from services.rpc.names import AliasName, EndpointName, ModelName, PlacementName, VersionName
from tests.manual_clock import ManualClock
from tests.unit.registry import records
from tests.unit.registry.trusting_inspector import Trusting

STEPS = 400
FORESEEN = (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
Step = Callable[[], Awaitable[object]]


class Shaker:
    """Draws calls over few names, so that they meet."""

    def __init__(self, store: MemoryStore, folder: Path, seed: int) -> None:
        self._random = random.Random(seed)
        blobs, clock = DiskBlobStore(folder), ManualClock()
        blobs.prepare()
        reaper = BlobReaper(store, blobs)
        self._store = store
        self._models = Models(store, reaper, clock)
        self._versions = Versions(store, blobs, reaper, Trusting())
        self._aliases = Aliases(store, clock)
        self._placements = Placements(store, clock)
        self._endpoints = Endpoints(store, clock)
        leases = Leases(clock)
        # A worker that has everything at once, and lets go of nothing: waiting for that ends by its bound.
        all_ready = {f"{model}@{version}": LoadState.READY for model in "mn" for version in "123"}
        leases.register(records.worker(pool=POOL, states=all_ready), 60)
        self._repository = Repository(store, Surroundings(leases, clock, None), seconds=0)

    def _model(self) -> str:
        return self._random.choice("mn")

    def _version(self, model: str | None = None) -> VersionName:
        return VersionName(model or self._model(), self._random.choice("123"))

    def _alias(self) -> AliasName:
        return AliasName(self._model(), self._random.choice("xy"))

    def _endpoint(self) -> EndpointName:
        return EndpointName(self._random.choice("em"))

    def _placement(self) -> PlacementName:
        return PlacementName(self._random.choice(["p", POOL]), self._version())

    def _policy(self) -> PolicyInput:
        names = [self._random.choice([self._version(), self._alias()]) for _ in range(2)]
        mirror = (str(self._version()), 5.0) if self._random.random() < 0.3 else None
        return PolicyInput(targets=[(str(name), 1.0) for name in names], mirror=mirror)

    async def _add(self) -> None:
        name = self._version()
        state = self._random.choice(
            [VersionState.READY, VersionState.READY, VersionState.UPLOADING]
        )

        async def work(transaction: Transaction) -> None:
            if await transaction.get(type(records.model()), name.parent) is None:
                await transaction.put(records.model(name.model))
            if await transaction.get(type(records.version()), name) is None:
                await transaction.put(records.version(f"{name.model}@{name.version}", state=state))

        await self._store.write(work)

    def step(self) -> Step:
        """The next call."""
        alias = self._alias()
        mask = self._random.choice([(), ("targets",), ("mirror",)])
        steps: list[Step] = [
            self._add,
            self._add,
            lambda: self._versions.delete(self._version(), ""),
            lambda: self._models.delete(
                ModelName(self._model()), "", force=self._random.random() < 0.5
            ),
            lambda: self._aliases.set(alias, self._version(alias.model), ""),
            lambda: self._aliases.set(alias, self._version(alias.model), ""),
            lambda: self._aliases.delete(self._alias(), ""),
            lambda: self._placements.create(self._placement()),
            lambda: self._placements.create(self._placement()),
            lambda: self._placements.delete(self._placement(), ""),
            lambda: self._endpoints.create(self._endpoint(), self._policy()),
            lambda: self._endpoints.update(
                self._endpoint(), self._policy(), mask, etag="", allow_missing=True
            ),
            lambda: self._endpoints.delete(self._endpoint(), ""),
            lambda: self._repository.load(ModelName(self._model()), None),
            lambda: self._repository.load(ModelName(alias.model), self._version().version),
            lambda: self._repository.unload(ModelName(self._model()), None),
        ]
        return self._random.choice(steps)


async def check(store: MemoryStore) -> int:
    """Raise if something refers to nothing, or an endpoint can't be served; returns how many endpoints there are."""
    held = {change.name: change.record for change in (await store.snapshot(ALL_KINDS)).changes}

    async def work(view: View) -> int:
        endpoints = [record for record in held.values() if isinstance(record, Endpoint)]
        for endpoint in endpoints:
            check_targets(
                [await resolve(view, field, target) for field, target in endpoint.references]
            )
        return len(endpoints)

    for record in held.values():
        assert record is not None
        for target in referred_by(record):
            assert str(target) in held, (record.name, target)
    return await store.read(work)


async def attempt(step: Step) -> bool:
    try:
        await step()
    except FORESEEN:
        return False
    return True


@pytest.mark.parametrize("seed", range(8))
async def test_one_call_after_another(tmp_path: Path, seed: int) -> None:
    """After each call the store adds up, and every refusal is one of the foreseen kinds."""
    store = MemoryStore(first_revision=1)
    shaker = Shaker(store, tmp_path, seed)
    done = served = 0
    for _ in range(STEPS):
        done += await attempt(shaker.step())
        served = max(served, await check(store))
    assert done > STEPS / 10
    assert served > 0


@pytest.mark.parametrize("seed", range(4))
async def test_many_calls_at_once(tmp_path: Path, seed: int) -> None:
    """Calls that run at the same time leave a store that adds up, too."""
    store = MemoryStore(first_revision=1)
    shaker = Shaker(store, tmp_path, seed)
    for _ in range(STEPS // 20):
        await asyncio.gather(*(attempt(shaker.step()) for _ in range(20)))
        await check(store)
    assert store.revision > 1


async def test_changes_rebuild_the_store(tmp_path: Path) -> None:
    """Whoever applies the changes after each revision holds what the store holds, at every moment."""
    store = MemoryStore(first_revision=1)
    shaker = Shaker(store, tmp_path, 99)
    mirror: dict[str, Record] = {}
    seen = store.revision
    for _ in range(STEPS):
        await attempt(shaker.step())
        news = await store.changes(seen, ALL_KINDS)
        seen = news.revision
        for change in news.changes:
            if change.record is None:
                mirror.pop(change.name, None)
            else:
                mirror[change.name] = change.record
        held = {c.name: c.record for c in (await store.snapshot(ALL_KINDS)).changes}
        assert mirror == held
