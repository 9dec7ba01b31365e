"""The store: the only place where models, versions, aliases, endpoints and placements are kept."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeVar

from services.registry.domain.catalog import ChangeSet, Name, Query, R, Record, ResourceKind
from services.registry.domain.model import BlobId

T = TypeVar("T")


class View(Protocol):
    """One consistent state of the store."""

    async def get(self, kind: type[R], name: Name) -> R | None:
        """The resource of this kind and name."""
        ...

    async def find(self, kind: type[R], query: Query) -> Sequence[R]:
        """Resources of a kind in the order of their sort keys."""
        ...

    async def referrers(self, name: Name) -> Sequence[Record]:
        """Resources that refer to this name directly, ordered by name."""
        ...

    async def blobs_in_use(self, among: Collection[BlobId] | None) -> set[BlobId]:
        """Which of these contents any version has; None: all contents that versions have."""
        ...


class Transaction(View, Protocol):
    """A state being changed; reads see the transaction's own writes."""

    async def put(self, record: R) -> R:
        """Create or replace; returns it with its new etag. What it refers to must exist."""
        ...

    async def delete(self, name: Name) -> None:
        """Delete what exists and is not referred to."""
        ...


class Store(Protocol):
    """Keeps resources and the log of their changes.

    Any number of callers at once. Writes run one after another; a write that changed something is
    durable, has the next revision (the last one plus 1) and has woken the waiters when `write` returns;
    one that raised changed nothing. A write that has begun ends even if its caller is cancelled. Readers
    never wait for writers. Foreign errors come out as ResourceExhaustedError (disk full),
    UnavailableError (locked, closed) or InternalError.
    """

    @property
    def revision(self) -> int:
        """Revision of the newest commit."""
        ...

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        """Run `work` on one consistent state."""
        ...

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` and commit what it changed, all or nothing."""
        ...

    async def snapshot(self, kinds: Collection[ResourceKind]) -> ChangeSet:
        """All resources of these kinds as they are, each after what it refers to."""
        ...

    async def changes(self, after: int, kinds: Collection[ResourceKind]) -> ChangeSet:
        """What changed after a revision until now, in the order of last changes.

        OutOfRangeError with reason REVISION_UNAVAILABLE if the log doesn't reach back that far, or not yet.
        """
        ...

    async def wait_beyond(self, revision: int) -> int:
        """Wait for a newer revision and return it. UnavailableError once the store closes."""
        ...
