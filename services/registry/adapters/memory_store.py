"""The store in memory: real in every way but durability."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from services.registry.adapters.change_log import (
    KEPT_CHANGES,
    broken_reference,
    check_resumable,
    etag_at,
)
from services.registry.domain.catalog import (
    KIND_OF,
    KIND_OF_NAME,
    Change,
    ChangeSet,
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
from services.registry.ports.store import Transaction, View
from services.rpc.completion import to_completion
from services.rpc.pulse import Pulse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _State:
    """A committed state; never changed, so readers need no lock."""

    revision: int
    records: Mapping[Name, Record] = field(default_factory=dict)


def _fits(record: Record, query: Query) -> bool:
    return (
        (query.parent is None or parent_of(record.name) == str(query.parent))
        and sort_key(record) > query.after
        and (
            query.state is None
            or (isinstance(record, ModelVersion) and record.state is query.state)
        )
    )


class _MemoryView:
    """Reads of one state."""

    def __init__(self, records: Mapping[Name, Record]) -> None:
        self._records = records

    async def get(self, kind: type[R], name: Name) -> R | None:
        record = self._records.get(name)
        return record if isinstance(record, kind) else None

    async def find(self, kind: type[R], query: Query) -> Sequence[R]:
        found = [r for r in self._records.values() if isinstance(r, kind) and _fits(r, query)]
        return sorted(found, key=sort_key)[: query.limit]

    async def referrers(self, name: Name) -> Sequence[Record]:
        found = [r for r in self._records.values() if name in referred_by(r)]
        return sorted(found, key=lambda record: str(record.name))

    async def blobs_in_use(self, among: Collection[BlobId] | None) -> set[BlobId]:
        used = {blob for record in self._records.values() for blob in blobs_of(record)}
        return used if among is None else used & set(among)


class _MemoryTransaction(_MemoryView):
    """Changes on a copy."""

    def __init__(self, records: dict[Name, Record], revision: int) -> None:
        super().__init__(records)
        self.records = records
        self.changed: list[Name] = []
        self._etag = etag_at(revision)

    async def put(self, record: R) -> R:
        for target in referred_by(record):
            if target not in self.records:
                raise broken_reference(record.name, target)
        stored = replace(record, etag=self._etag)
        self.records[record.name] = stored
        self.changed.append(record.name)
        return stored

    async def delete(self, name: Name) -> None:
        users = await self.referrers(name)
        if users:
            raise broken_reference(users[0].name, name)
        del self.records[name]
        self.changed.append(name)


class MemoryStore:
    """A Store whose state is gone with the process."""

    def __init__(self, *, first_revision: int, kept_changes: int = KEPT_CHANGES) -> None:
        """Begin empty.

        Args:
            first_revision: where revisions begin (see `change_log`).
            kept_changes: how many changes can be resumed from, at least.
        """
        self._state = _State(first_revision)
        self._kept = kept_changes
        self._oldest = first_revision
        self._log: list[tuple[int, Name]] = []
        self._writing = asyncio.Lock()
        self._pulse = Pulse(first_revision)

    @property
    def revision(self) -> int:
        return self._state.revision

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        return await work(_MemoryView(self._state.records))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await to_completion(self._write(work))

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._writing:
            revision = self._state.revision + 1
            transaction = _MemoryTransaction(dict(self._state.records), revision)
            result = await work(transaction)
            if transaction.changed:
                self._log.extend((revision, name) for name in dict.fromkeys(transaction.changed))
                self._compact()
                self._state = _State(revision, transaction.records)
                self._pulse.tell(revision)
            return result

    def _compact(self) -> None:
        if len(self._log) < 2 * self._kept:
            return
        self._oldest = self._log[-self._kept][0] - 1
        self._log = [entry for entry in self._log if entry[0] > self._oldest]

    async def snapshot(self, kinds: Collection[ResourceKind]) -> ChangeSet:
        state = self._state
        order = list(ResourceKind)
        changes = [
            Change(KIND_OF[type(record)], str(record.name), record)
            for record in state.records.values()
            if KIND_OF[type(record)] in kinds
        ]
        changes.sort(key=lambda change: (order.index(change.kind), change.name))
        return ChangeSet(state.revision, changes)

    async def changes(self, after: int, kinds: Collection[ResourceKind]) -> ChangeSet:
        state = self._state
        check_resumable(after, self._oldest, state.revision)
        last: dict[Name, None] = {}
        for revision, name in self._log:
            if revision > after and KIND_OF_NAME[type(name)] in kinds:
                last.pop(name, None)
                last[name] = None
        changes = [Change(KIND_OF_NAME[type(n)], str(n), state.records.get(n)) for n in last]
        return ChangeSet(state.revision, changes)

    async def follow(self) -> None:
        """Hear of what other processes write: there are none."""

    async def wait_beyond(self, revision: int) -> int:
        return await self._pulse.wait_beyond(revision)

    def close(self) -> None:
        """End all waiting."""
        self._pulse.close()
