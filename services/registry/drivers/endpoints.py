"""Use cases of endpoints: what clients call, and where it goes."""

from collections.abc import Sequence
from dataclasses import replace

from services.registry.domain.endpoint import POLICY_FIELDS, Endpoint, PolicyInput, check_policy
from services.registry.domain.references import check_etag, check_targets, not_found
from services.registry.drivers.lookup import existing, page, resolve
from services.registry.ports.store import Store, Transaction, View
from services.rpc.clock import Clock
from services.rpc.errors import AbortedError, AlreadyExistsError
from services.rpc.names import EndpointName
from services.rpc.page import Page, PageRequest
from services.rpc.update_mask import masked_fields


class Endpoints:
    """Creates, changes, lists and deletes endpoints; their targets can always be served."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, name: EndpointName, given: PolicyInput) -> Endpoint:
        """AlreadyExistsError if the name is taken."""
        created = self._new(name, given)

        async def work(transaction: Transaction) -> Endpoint:
            if await transaction.get(Endpoint, name) is not None:
                raise AlreadyExistsError(f"{name} exists already", metadata={"resource": str(name)})
            return await put_checked(transaction, created)

        return await self._store.write(work)

    def _new(self, name: EndpointName, given: PolicyInput) -> Endpoint:
        now = self._clock.now()
        return Endpoint(name=name, create_time=now, update_time=now, **check_policy(given))

    async def get(self, name: EndpointName) -> Endpoint:
        return await self._store.read(lambda view: existing(view, Endpoint, name))

    async def list(self, request: PageRequest) -> Page[Endpoint]:
        return await page(self._store, Endpoint, request)

    async def update(
        self,
        name: EndpointName,
        given: PolicyInput,
        mask: Sequence[str],
        *,
        etag: str,
        allow_missing: bool,
    ) -> Endpoint:
        """Change the masked fields; with `allow_missing` a missing endpoint is created from all fields."""
        changed = check_policy(given, masked_fields(mask, POLICY_FIELDS))

        async def work(transaction: Transaction) -> Endpoint:
            endpoint = await transaction.get(Endpoint, name)
            if endpoint is None and not allow_missing:
                raise not_found(name)
            if endpoint is None:
                if etag:
                    raise AbortedError(
                        f"etag: {etag!a} was given, but {name} does not exist",
                        metadata={"resource": str(name), "given": etag},
                    )
                return await put_checked(transaction, self._new(name, given))
            check_etag(endpoint, etag)
            updated = replace(endpoint, update_time=self._clock.now(), **changed)
            return await put_checked(transaction, updated)

        return await self._store.write(work)

    async def delete(self, name: EndpointName, etag: str) -> None:
        async def work(transaction: Transaction) -> None:
            check_etag(await existing(transaction, Endpoint, name), etag)
            await transaction.delete(name)

        await self._store.write(work)


async def put_checked(transaction: Transaction, endpoint: Endpoint) -> Endpoint:
    """Keep an endpoint whose targets can be served; check_targets says what is wrong with them."""
    await _check(transaction, endpoint)
    return await transaction.put(endpoint)


async def _check(view: View, endpoint: Endpoint) -> None:
    check_targets([await resolve(view, field, target) for field, target in endpoint.references])
