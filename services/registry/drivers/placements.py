"""Use cases of placements: which versions are loaded on which pools."""

from services.registry.domain.model import ModelVersion
from services.registry.domain.placement import Placement
from services.registry.domain.references import check_etag, check_ready, refuse_while_used
from services.registry.drivers.lookup import endpoints_serving, existing, page, placements_of
from services.registry.ports.store import Store, Transaction
from services.rpc.clock import Clock
from services.rpc.errors import AlreadyExistsError, NotFoundError
from services.rpc.names import PlacementName, PoolName
from services.rpc.page import Page, PageRequest


class Placements:
    """Creates, lists and deletes placements."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, name: PlacementName) -> Placement:
        """Place a READY version on a pool; AlreadyExistsError if it is there."""

        async def work(transaction: Transaction) -> Placement:
            if await transaction.get(Placement, name) is not None:
                raise AlreadyExistsError(f"{name} exists already", metadata={"resource": str(name)})
            version = await transaction.get(ModelVersion, name.version)
            if version is None:
                raise NotFoundError(
                    f"placement.version: {name.version} does not exist",
                    metadata={"resource": str(name.version)},
                )
            check_ready("placement.version", version)
            return await transaction.put(Placement(name=name, create_time=self._clock.now()))

        return await self._store.write(work)

    async def get(self, name: PlacementName) -> Placement:
        return await self._store.read(lambda view: existing(view, Placement, name))

    async def list(self, parent: PoolName | None, request: PageRequest) -> Page[Placement]:
        """Placements of one pool, or of all."""
        return await page(self._store, Placement, request, parent)

    async def delete(self, name: PlacementName, etag: str) -> None:
        """Take a version off a pool, unless an endpoint needs it and no other pool has it."""

        async def work(transaction: Transaction) -> None:
            check_etag(await existing(transaction, Placement, name), etag)
            if len(await placements_of(transaction, name.version)) == 1:
                users = await endpoints_serving(transaction, name.version)
                refuse_while_used(name, [user.name for user in users])
            await transaction.delete(name)

        await self._store.write(work)
