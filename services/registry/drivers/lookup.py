"""Reads that use cases share: what must exist, pages of a listing, who serves what."""

from collections.abc import Sequence

from services.registry.domain.catalog import Name, Query, R, sort_key
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import Alias, ModelVersion
from services.registry.domain.placement import Placement
from services.registry.domain.references import ResolvedTarget, not_found
from services.registry.ports.store import Store, View
from services.rpc.names import AliasName, ModelName, PoolName, TargetName, VersionName
from services.rpc.page import Page, PageRequest, cut


async def existing(view: View, kind: type[R], name: Name) -> R:
    """The resource; NotFoundError if there is none."""
    record = await view.get(kind, name)
    if record is None:
        raise not_found(name)
    return record


async def page(
    store: Store, kind: type[R], request: PageRequest, parent: ModelName | PoolName | None = None
) -> Page[R]:
    """One page of a listing."""
    query = Query(parent=parent, after=request.after, limit=request.size + 1)

    async def find(view: View) -> Sequence[R]:
        return await view.find(kind, query)

    return cut(request, await store.read(find), sort_key)


async def resolve(view: View, field: str, target: TargetName) -> ResolvedTarget:
    """A target with the alias followed and what serves it."""
    name: VersionName | None
    if isinstance(target, AliasName):
        alias = await view.get(Alias, target)
        name = None if alias is None else alias.version
    else:
        name = target
    version = None if name is None else await view.get(ModelVersion, name)
    placed = name is not None and bool(await placements_of(view, name))
    return ResolvedTarget(field, target, name, version, placed)


async def placements_of(view: View, version: VersionName) -> list[Placement]:
    """Where a version is placed."""
    return [r for r in await view.referrers(version) if isinstance(r, Placement)]


async def endpoints_serving(view: View, version: VersionName) -> list[Endpoint]:
    """Endpoints that have a version as target or mirror, also through an alias."""
    found: dict[str, Endpoint] = {}
    names: list[TargetName] = [version]
    names += [r.name for r in await view.referrers(version) if isinstance(r, Alias)]
    for name in names:
        for record in await view.referrers(name):
            if isinstance(record, Endpoint):
                found[str(record.name)] = record
    return list(found.values())
