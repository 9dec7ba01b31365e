"""The log of changes in an SQL database: which resources each commit changed, and how far back it reaches."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters import record_codec
from services.registry.adapters.change_log import check_resumable
from services.registry.adapters.tables import changes, log_bounds, resources
from services.registry.domain.catalog import (
    KIND_OF_NAME,
    Change,
    ChangeSet,
    Name,
    ResourceKind,
)

_COMPACT_EVERY = 256  # commits; counting the log each time would cost more than it saves


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the log reaches, and whose turn it is."""

    oldest: int
    revision: int
    epoch: int


async def bounds(connection: AsyncConnection) -> Bounds:
    """The log's bounds as the transaction sees them."""
    columns = log_bounds.c.oldest, log_bounds.c.revision, log_bounds.c.epoch
    row = (await connection.execute(sa.select(*columns))).one()
    return Bounds(int(row.oldest), int(row.revision), int(row.epoch))


async def newest(connection: AsyncConnection) -> int:
    """The newest revision; 0 while the database is empty."""
    if not await connection.run_sync(lambda sync: sa.inspect(sync).has_table(log_bounds.name)):
        return 0
    return int(await connection.scalar(sa.select(log_bounds.c.revision)) or 0)


async def take_over(connection: AsyncConnection, first_revision: int) -> Bounds:
    """Begin a new epoch; a new database's log begins at `first_revision`."""
    found = await connection.execute(log_bounds.update().values(epoch=log_bounds.c.epoch + 1))
    if found.rowcount == 0:
        row = {"id": 1, "oldest": first_revision, "revision": first_revision, "epoch": 1}
        await connection.execute(log_bounds.insert().values(row))
    return await bounds(connection)


async def append(connection: AsyncConnection, revision: int, names: Sequence[Name]) -> None:
    """Note what a commit changed."""
    rows = [
        {
            "revision": revision,
            "ordinal": ordinal,
            "kind": KIND_OF_NAME[type(name)].value,
            "name": str(name),
        }
        for ordinal, name in enumerate(dict.fromkeys(names))
    ]
    await connection.execute(changes.insert(), rows)
    await connection.execute(log_bounds.update().values(revision=revision))


async def compact(connection: AsyncConnection, revision: int, kept: int) -> None:
    """Now and then, drop whole commits so that at least `kept` changes stay."""
    if revision % min(_COMPACT_EVERY, kept):
        return
    newest_first = changes.c.revision.desc(), changes.c.ordinal.desc()
    last_kept = await connection.scalar(
        sa.select(changes.c.revision).order_by(*newest_first).offset(kept - 1).limit(1)
    )
    if last_kept is not None:
        await connection.execute(changes.delete().where(changes.c.revision < last_kept))
        await connection.execute(log_bounds.update().values(oldest=last_kept - 1))


async def snapshot(connection: AsyncConnection, kinds: Collection[ResourceKind]) -> ChangeSet:
    """All resources of these kinds."""
    newest = (await bounds(connection)).revision
    found: list[Change] = []
    for kind in ResourceKind:
        if kind not in kinds:
            continue
        wanted = (
            sa.select(resources.c.name, resources.c.body)
            .where(resources.c.kind == kind.value)
            .order_by(resources.c.name)
        )
        for name, body in (await connection.execute(wanted)).all():
            found.append(Change(kind, name, record_codec.decode_any(kind, body)))
    return ChangeSet(newest, found)


async def changes_after(
    connection: AsyncConnection, after: int, kinds: Collection[ResourceKind]
) -> ChangeSet:
    """What changed after a revision."""
    reach = await bounds(connection)
    check_resumable(after, reach.oldest, reach.revision)
    # The last change of each resource, in order, with the resource as it is now.
    last = (
        sa.select(changes.c.kind, changes.c.name, sa.func.max(changes.c.revision).label("at"))
        .where(changes.c.revision > after, changes.c.kind.in_([kind.value for kind in kinds]))
        .group_by(changes.c.kind, changes.c.name)
        .subquery()
    )
    wanted = (
        sa.select(last.c.kind, last.c.name, resources.c.body)
        .outerjoin_from(last, resources, resources.c.name == last.c.name)
        .join(
            changes,
            sa.and_(changes.c.revision == last.c.at, changes.c.name == last.c.name),
        )
        .order_by(changes.c.revision, changes.c.ordinal)
    )
    rows = (await connection.execute(wanted)).all()
    return ChangeSet(reach.revision, [_change(kind, name, body) for kind, name, body in rows])


def _change(kind_value: str, name: str, body: str | None) -> Change:
    kind = ResourceKind(kind_value)
    record = None if body is None else record_codec.decode_any(kind, body)
    return Change(kind, name, record)
