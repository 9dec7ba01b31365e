"""Reads and writes of resources on one SQL connection, inside its transaction."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters import record_codec
from services.registry.adapters.change_log import broken_reference, etag_at
from services.registry.adapters.tables import blob_uses, links, resources
from services.registry.domain.catalog import (
    KIND_OF,
    KIND_OF_NAME,
    Name,
    Query,
    R,
    Record,
    ResourceKind,
    blobs_of,
    parent_of,
    referred_by,
    sort_key,
)
from services.registry.domain.model import BlobId, ModelVersion

_IN_LIST = 1000  # values in one IN (...); databases limit the parameters of a statement


def _state_of(record: Record) -> str:
    return record.state.value if isinstance(record, ModelVersion) else ""


class SqlView:
    """Reads of one state."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, kind: type[R], name: Name) -> R | None:
        wanted = sa.select(resources.c.body).where(
            resources.c.name == str(name), resources.c.kind == KIND_OF[kind].value
        )
        body = await self._connection.scalar(wanted)
        return None if body is None else record_codec.decode(kind, body)

    async def find(self, kind: type[R], query: Query) -> Sequence[R]:
        wanted = (
            sa.select(resources.c.body)
            .where(resources.c.kind == KIND_OF[kind].value, resources.c.sort_key > query.after)
            .order_by(resources.c.sort_key)
            .limit(query.limit)
        )
        if query.parent is not None:
            wanted = wanted.where(resources.c.parent == str(query.parent))
        if query.state is not None:
            wanted = wanted.where(resources.c.state == query.state.value)
        bodies = (await self._connection.scalars(wanted)).all()
        return [record_codec.decode(kind, body) for body in bodies]

    async def referrers(self, name: Name) -> Sequence[Record]:
        wanted = (
            sa.select(resources.c.kind, resources.c.body)
            .join(links, links.c.source == resources.c.name)
            .where(links.c.target == str(name))
            .order_by(resources.c.name)
        )
        rows = (await self._connection.execute(wanted)).all()
        return [record_codec.decode_any(ResourceKind(kind), body) for kind, body in rows]

    async def blobs_in_use(self, among: Collection[BlobId] | None) -> set[BlobId]:
        columns = sa.select(blob_uses.c.sha256, blob_uses.c.size_bytes).distinct()
        if among is None:
            rows = (await self._connection.execute(columns)).all()
            return {BlobId(sha256, size) for sha256, size in rows}
        digests = [blob.sha256 for blob in among]
        used: set[BlobId] = set()
        for start in range(0, len(digests), _IN_LIST):
            some = digests[start : start + _IN_LIST]
            rows = (
                await self._connection.execute(columns.where(blob_uses.c.sha256.in_(some)))
            ).all()
            used |= {BlobId(sha256, size) for sha256, size in rows}
        return used & set(among)


class SqlTransaction(SqlView):
    """A state being changed."""

    def __init__(self, connection: AsyncConnection, revision: int) -> None:
        super().__init__(connection)
        self.changed: list[Name] = []
        self._etag = etag_at(revision)

    async def put(self, record: R) -> R:
        stored = replace(record, etag=self._etag)
        name = str(record.name)
        row = {
            "kind": KIND_OF_NAME[type(record.name)].value,
            "parent": parent_of(record.name),
            "sort_key": sort_key(record),
            "state": _state_of(record),
            "body": record_codec.encode(stored),
        }
        updated = await self._connection.execute(
            resources.update().where(resources.c.name == name).values(row)
        )
        if updated.rowcount == 0:
            await self._connection.execute(resources.insert().values(name=name, **row))
        await self._relink(record)
        self.changed.append(record.name)
        return stored

    async def _relink(self, record: Record) -> None:
        name = str(record.name)
        await self._connection.execute(links.delete().where(links.c.source == name))
        targets = [{"source": name, "target": str(target)} for target in referred_by(record)]
        if targets:
            try:
                await self._connection.execute(links.insert(), targets)
            except IntegrityError as error:
                given = ", ".join(target["target"] for target in targets)
                raise broken_reference(name, given) from error
        if isinstance(record, ModelVersion):
            await self._connection.execute(blob_uses.delete().where(blob_uses.c.version == name))
            uses = [
                {"version": name, "sha256": blob.sha256, "size_bytes": blob.size_bytes}
                for blob in blobs_of(record)
            ]
            if uses:
                await self._connection.execute(blob_uses.insert(), uses)

    async def delete(self, name: Name) -> None:
        try:
            await self._connection.execute(resources.delete().where(resources.c.name == str(name)))
        except IntegrityError as error:
            raise broken_reference("another resource", name) from error
        self.changed.append(name)
