"""Use cases of models and their aliases."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.registry.domain.catalog import Name, Query
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.fields import check_description, check_tags
from services.registry.domain.model import Alias, BlobId, Model, ModelVersion
from services.registry.domain.placement import Placement
from services.registry.domain.references import (
    check_etag,
    check_ready,
    check_targets,
    refuse_while_used,
)
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.lookup import endpoints_serving, existing, page, resolve
from services.registry.ports.store import Store, Transaction, View
from services.rpc.clock import Clock
from services.rpc.completion import to_completion
from services.rpc.errors import AbortedError, AlreadyExistsError, NotFoundError
from services.rpc.names import AliasName, ModelName, VersionName
from services.rpc.page import Page, PageRequest
from services.rpc.update_mask import masked_fields
from services.rpc.violations import Violations

MODEL_FIELDS = ("description", "tags")


class Models:
    """Creates, changes, lists and deletes models."""

    def __init__(self, store: Store, reaper: BlobReaper, clock: Clock) -> None:
        self._store = store
        self._reaper = reaper
        self._clock = clock

    async def create(self, name: ModelName, description: str, tags: Mapping[str, str]) -> Model:
        """AlreadyExistsError if the name is taken."""
        violations = Violations()
        check_description(violations, description)
        tags = check_tags(violations, "tags", tags)
        violations.raise_if_any()
        now = self._clock.now()
        model = Model(
            name=name, description=description, tags=tags, create_time=now, update_time=now
        )

        async def work(transaction: Transaction) -> Model:
            if await transaction.get(Model, name) is not None:
                raise AlreadyExistsError(f"{name} exists already", metadata={"resource": str(name)})
            return await transaction.put(model)

        return await self._store.write(work)

    async def get(self, name: ModelName) -> Model:
        return await self._store.read(lambda view: existing(view, Model, name))

    async def list(self, request: PageRequest) -> Page[Model]:
        return await page(self._store, Model, request)

    async def update(
        self,
        name: ModelName,
        *,
        description: str,
        tags: Mapping[str, str],
        mask: Sequence[str],
        etag: str,
    ) -> Model:
        """Change the masked fields."""
        fields = masked_fields(mask, MODEL_FIELDS)
        violations = Violations()
        changed: dict[str, Any] = {}
        if "description" in fields:
            changed["description"] = check_description(violations, description)
        if "tags" in fields:
            changed["tags"] = check_tags(violations, "tags", tags)
        violations.raise_if_any()

        async def work(transaction: Transaction) -> Model:
            model = await existing(transaction, Model, name)
            check_etag(model, etag)
            updated = replace(model, update_time=self._clock.now(), **changed)
            return await transaction.put(updated)

        return await self._store.write(work)

    async def delete(self, name: ModelName, etag: str, *, force: bool) -> None:
        """Delete a model; with `force` its versions and aliases too, unless something serves them."""
        await to_completion(self._delete(name, etag, force=force))

    async def _delete(self, name: ModelName, etag: str, *, force: bool) -> None:
        async def work(transaction: Transaction) -> list[BlobId]:
            model = await existing(transaction, Model, name)
            check_etag(model, etag)
            versions = await transaction.find(ModelVersion, Query(parent=name))
            aliases = await transaction.find(Alias, Query(parent=name))
            if not force:
                refuse_while_used(name, [version.name for version in versions])
            users: list[Name] = []
            for version in versions:
                users += await _users_outside(transaction, version.name)
            refuse_while_used(name, users)
            children: list[Name] = [alias.name for alias in aliases]
            children += [version.name for version in versions]
            for child in children:
                await transaction.delete(child)
            await transaction.delete(name)
            return [file.blob for version in versions for file in version.files]

        async with self._reaper.guard:
            await self._reaper.remove_unused(await self._store.write(work))


async def _users_outside(view: View, version: VersionName) -> list[Name]:
    users: list[Name] = [
        record.name for record in await view.referrers(version) if isinstance(record, Placement)
    ]
    users += [endpoint.name for endpoint in await endpoints_serving(view, version)]
    return users


class Aliases:
    """Sets, lists and deletes aliases."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def set(self, name: AliasName, version: VersionName, etag: str) -> Alias:
        """Create the alias or move it; what endpoints serve through it must be servable after the move."""

        async def work(transaction: Transaction) -> Alias:
            alias = await transaction.get(Alias, name)
            if alias is None and etag:
                raise AbortedError(
                    f"etag: {etag!a} was given, but {name} does not exist",
                    metadata={"resource": str(name), "given": etag},
                )
            if alias is not None:
                check_etag(alias, etag)
            target = await transaction.get(ModelVersion, version)
            if target is None:
                raise NotFoundError(
                    f"alias.version: {version} does not exist", metadata={"resource": str(version)}
                )
            check_ready("alias.version", target)
            now = self._clock.now()
            created = now if alias is None else alias.create_time
            moved = await transaction.put(
                Alias(name=name, version=version, create_time=created, update_time=now)
            )
            await _check_endpoints(transaction, name)
            return moved

        return await self._store.write(work)

    async def get(self, name: AliasName) -> Alias:
        return await self._store.read(lambda view: existing(view, Alias, name))

    async def list(self, parent: ModelName, request: PageRequest) -> Page[Alias]:
        await self._store.read(lambda view: existing(view, Model, parent))
        return await page(self._store, Alias, request, parent)

    async def delete(self, name: AliasName, etag: str) -> None:
        async def work(transaction: Transaction) -> None:
            alias = await existing(transaction, Alias, name)
            check_etag(alias, etag)
            refuse_while_used(name, [user.name for user in await transaction.referrers(name)])
            await transaction.delete(name)

        await self._store.write(work)


async def _check_endpoints(view: View, alias: AliasName) -> None:
    """The endpoints that follow an alias must be able to serve what it names now."""
    for endpoint in await view.referrers(alias):
        if isinstance(endpoint, Endpoint):
            targets = [await resolve(view, field, target) for field, target in endpoint.references]
            check_targets(targets)
