"""The store of projects, API keys and the public halves of signing keys."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias, TypeVar

from services.metering.domain.api_key import ApiKey, KeyState
from services.metering.domain.project import Project
from services.metering.domain.signing_key import SigningKey
from services.rpc.names import KeyName, ProjectName

T = TypeVar("T")
Owner: TypeAlias = tuple[str, str]  # ids of a project and of its key; empty: the project itself
Tags: TypeAlias = Mapping[str, str]
Record: TypeAlias = Project | ApiKey | SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """Which keys are wanted, in the order of their creation."""

    limit: int
    after: str = ""  # sort key of the last one already seen
    project: ProjectName | None = None  # None: of all
    live_at: datetime | None = None  # only those that let in then (their projects aside); None: all
    policy_at: datetime | None = None  # only those that the edge must know of then; None: all


def key_sort_key(key: ApiKey) -> str:
    """What keys are ordered by: when they were made."""
    return f"{microseconds(key.create_time):016d}-{key.name.key}"


def microseconds(moment: datetime) -> int:
    """The moment as stores keep it, which compare numbers."""
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


class IdentityView(Protocol):
    """One consistent state."""

    async def project(self, name: ProjectName) -> Project | None:
        """The project of this name."""
        ...

    async def projects(self, after: str, limit: int) -> Sequence[Project]:
        """Projects in the order of their ids, from the first beyond `after`."""
        ...

    async def key(self, name: KeyName) -> ApiKey | None:
        """The key of this name."""
        ...

    async def keys(self, query: KeyQuery) -> Sequence[ApiKey]:
        """Keys in the order of their sort keys."""
        ...

    async def tags(self, owners: Collection[Owner]) -> Mapping[Owner, Tags]:
        """Own tags of projects and keys; those that have none, or are not there, are missing."""
        ...

    async def signing_keys(self) -> Sequence[SigningKey]:
        """All of them, the oldest first; at most one has no retire time."""
        ...

    async def admin_lives(self, now: datetime) -> bool:
        """Whether any admin's key lets in, its project not disabled."""
        ...

    async def count_keys(self, now: datetime) -> Mapping[KeyState, int]:
        """How many keys are in each state."""
        ...


class IdentityTransaction(IdentityView, Protocol):
    """A state being changed; reads see the transaction's own writes."""

    async def put_project(self, project: Project) -> None:
        """Create or replace."""
        ...

    async def put_key(self, key: ApiKey) -> None:
        """Create or replace. Its project and its signing key must exist."""
        ...

    async def put_signing_key(self, key: SigningKey) -> None:
        """Create or replace."""
        ...


class IdentityStore(Protocol):
    """Keeps identities.

    Any number of callers at once. Writes run one after another; one that returned is durable, one that
    raised changed nothing, one that has begun ends even if its caller is cancelled. Readers never wait for
    writers. Foreign errors come out as ResourceExhaustedError, UnavailableError or InternalError.
    """

    def follow(self, taken: Callable[[Sequence[Record]], None]) -> None:
        """Have somebody hear of what other processes wrote: before each write here, and soon after theirs.

        Never while a write here is between its begin and its `committed`.
        """
        ...

    async def read(self, work: Callable[[IdentityView], Awaitable[T]]) -> T:
        """Run `work` on one consistent state."""
        ...

    async def write(
        self,
        work: Callable[[IdentityTransaction], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work` and commit what it changed, all or nothing.

        `committed` is called with the result once it is durable, before the next write begins.
        """
        ...
