"""Use cases of the repository that Triton's clients know: index, load, unload."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from services.registry.domain import repository
from services.registry.domain.catalog import Query
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import Model, ModelVersion, VersionState
from services.registry.domain.placement import Placement
from services.registry.domain.references import check_ready, not_found, refuse_while_used
from services.registry.domain.repository import POOL, IndexEntry, RepositoryState
from services.registry.drivers.endpoints import put_checked
from services.registry.drivers.lookup import endpoints_serving, existing, placements_of, resolve
from services.registry.ports.edge_routes import EdgeRoutes
from services.registry.ports.live_workers import LiveWorkers
from services.registry.ports.store import Store, Transaction, View
from services.rpc.clock import Clock
from services.rpc.errors import AbortedError, DeadlineExceededError, FailedPreconditionError
from services.rpc.names import ModelName, PlacementName, VersionName


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the repository looks at besides the store."""

    leases: LiveWorkers
    clock: Clock
    routes: EdgeRoutes | None  # None: nobody to ask


class Repository:
    """Loading places a model on one pool and makes an endpoint of its name; unloading takes both back."""

    def __init__(self, store: Store, around: Surroundings, seconds: float) -> None:
        self._store = store
        self._leases = around.leases
        self._clock = around.clock
        self._routes = around.routes
        self._seconds = seconds

    async def index(self, *, ready_only: bool) -> list[IndexEntry]:
        """Every complete version of every model, by name and age."""
        workers = self._leases.workers()

        async def work(view: View) -> list[IndexEntry]:
            pools: dict[VersionName, set[str]] = {}
            for placement in await view.find(Placement, Query()):
                pools.setdefault(placement.version, set()).add(placement.name.pool)
            versions = await view.find(ModelVersion, Query(state=VersionState.READY))
            return [
                repository.index_entry(version.name, pools.get(version.name, set()), workers)
                for version in sorted(versions, key=lambda one: (one.name.model, one.create_time))
            ]

        entries = await self._store.read(work)
        return [e for e in entries if not ready_only or e.state is RepositoryState.READY]

    async def load(self, model: ModelName, version_id: str | None) -> VersionName:
        """Place a version (None: the newest), wait until a worker has it, and have it answer under the model's name.

        An endpoint of this name that somebody else made keeps its traffic as it is.
        """
        name = await self._place(model, version_id)
        await self._until(lambda: repository.is_loaded(name, self._leases.workers()), name)
        is_served = await self._serve(name)
        if is_served and self._routes is not None:
            await self._routes.wait_routed(repository.endpoint_name(name), name)
        return name

    async def _place(self, model: ModelName, version_id: str | None) -> VersionName:
        async def work(transaction: Transaction) -> VersionName:
            version = await _to_load(transaction, model, version_id)
            placement = PlacementName(POOL, version.name)
            if await transaction.get(Placement, placement) is None:
                await transaction.put(Placement(name=placement, create_time=self._clock.now()))
            return version.name

        return await self._store.write(work)

    async def _serve(self, version: VersionName) -> bool:
        """Make the endpoint, or move the one that was made for another version; whether it leads to the version."""

        async def work(transaction: Transaction) -> bool:
            name, now = repository.endpoint_name(version), self._clock.now()
            made = repository.made_by_load(version, now)
            endpoint = await transaction.get(Endpoint, name)
            if endpoint is None:
                endpoint = await put_checked(transaction, made)
            elif repository.is_as_made(endpoint) and endpoint.targets != made.targets:
                moved = replace(endpoint, targets=made.targets, update_time=now)
                endpoint = await put_checked(transaction, moved)
            targets = [
                await resolve(transaction, "targets", target.target) for target in endpoint.targets
            ]
            return version in [target.version_name for target in targets]

        return await self._store.write(work)

    async def unload(self, model: ModelName, version_id: str | None) -> None:
        """Take a version (None: all) off the pool, and wait until its workers are rid of it.

        The endpoint that loading made goes with it. FailedPreconditionError while another endpoint needs it.
        """

        async def work(transaction: Transaction) -> list[VersionName]:
            placed = await _to_unload(transaction, model, version_id)
            await _delete_made(transaction, {placement.version for placement in placed})
            for placement in placed:
                if len(await placements_of(transaction, placement.version)) == 1:
                    users = await endpoints_serving(transaction, placement.version)
                    refuse_while_used(placement.name, [user.name for user in users])
                await transaction.delete(placement.name)
            return [placement.version for placement in placed]

        unloaded = await self._store.write(work)
        try:
            async with asyncio.timeout(self._seconds):
                for version in unloaded:
                    await self._until_gone(version)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"{model} is still held by a worker after {self._seconds:g} s; it is on no pool any"
                " more, and goes when its last call has ended"
            ) from error

    async def _until_gone(self, version: VersionName) -> None:
        placement = PlacementName(POOL, version)
        generation = 0
        while repository.is_held(version, self._leases.workers()):
            if await self._store.read(lambda view: view.get(Placement, placement)) is not None:
                return  # loaded again, which is somebody else's wish
            generation = await self._leases.wait_beyond(generation)

    async def _until(self, holds: Callable[[], bool], version: VersionName) -> None:
        """Wait until it holds. AbortedError if the version is taken off the pool meanwhile."""
        placement = PlacementName(POOL, version)
        generation, revision = 0, self._store.revision
        try:
            async with asyncio.timeout(self._seconds):
                while not holds():
                    if await self._store.read(lambda view: view.get(Placement, placement)) is None:
                        raise AbortedError(
                            f"{version.short} was unloaded while it was being loaded",
                            reason="UNLOADED",
                            metadata={"resource": str(placement)},
                        )
                    generation, revision = await self._news(generation, revision)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"{version.short} was not loaded within {self._seconds:g} s; it stays placed on"
                f" pool {POOL}, and loading goes on"
            ) from error

    async def _news(self, generation: int, revision: int) -> tuple[int, int]:
        """Wait until workers report something else or the store changes; both positions as of then."""
        waits = [
            asyncio.ensure_future(self._leases.wait_beyond(generation)),
            asyncio.ensure_future(self._store.wait_beyond(revision)),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                if not wait.cancel() and not wait.cancelled():
                    wait.exception()  # asked for, so that it is not reported as never retrieved
        workers, changes = waits
        return (
            workers.result() if workers in done else generation,
            changes.result() if changes in done else revision,
        )


async def _to_load(view: View, model: ModelName, version_id: str | None) -> ModelVersion:
    await existing(view, Model, model)
    if version_id is not None:
        version = await existing(view, ModelVersion, VersionName(model.model, version_id))
        check_ready("parameters['version']", version)
        return version
    ready = await view.find(ModelVersion, Query(parent=model, state=VersionState.READY))
    if not ready:
        raise FailedPreconditionError(
            f"{model} has no complete version; push one, or finish its upload",
            reason="VERSION_NOT_READY",
            metadata={"resource": str(model)},
        )
    return ready[-1]


async def _to_unload(view: View, model: ModelName, version_id: str | None) -> list[Placement]:
    await existing(view, Model, model)
    if version_id is None:
        names = [version.name for version in await view.find(ModelVersion, Query(parent=model))]
    else:
        names = [VersionName(model.model, version_id)]
        if await view.get(ModelVersion, names[0]) is None:
            raise not_found(names[0])
    found = [await view.get(Placement, PlacementName(POOL, name)) for name in names]
    return [placement for placement in found if placement is not None]


async def _delete_made(transaction: Transaction, versions: set[VersionName]) -> None:
    """Delete the endpoint that loading made for one of these versions, unless somebody changed it."""
    for version in versions:
        name = repository.endpoint_name(version)
        endpoint = await transaction.get(Endpoint, name)
        if endpoint is None or not repository.is_as_made(endpoint):
            continue
        if endpoint.targets[0].target == version:
            await transaction.delete(name)
