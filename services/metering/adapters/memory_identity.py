"""The store of identities in memory: real in every way but durability."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from services.metering.domain.api_key import ApiKey, KeyState, Role
from services.metering.domain.policy import CLOCK_SKEW, in_policy
from services.metering.domain.project import Project
from services.metering.domain.signing_key import SigningKey
from services.metering.ports.identity_store import (
    IdentityTransaction,
    IdentityView,
    KeyQuery,
    Owner,
    Record,
    Tags,
    key_sort_key,
)
from services.rpc.completion import to_completion
from services.rpc.errors import InternalError
from services.rpc.names import KeyName, ProjectName

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _State:
    """A committed state; never changed, so readers need no lock."""

    projects: dict[ProjectName, Project] = field(default_factory=dict)
    keys: dict[KeyName, ApiKey] = field(default_factory=dict)
    signing_keys: dict[str, SigningKey] = field(default_factory=dict)

    def copy(self) -> "_State":
        return _State(dict(self.projects), dict(self.keys), dict(self.signing_keys))


class _MemoryView:
    """Reads of one state."""

    def __init__(self, state: _State) -> None:
        self.state = state

    async def project(self, name: ProjectName) -> Project | None:
        return self.state.projects.get(name)

    async def projects(self, after: str, limit: int) -> Sequence[Project]:
        names = sorted(name for name in self.state.projects if name.project > after)
        return [self.state.projects[name] for name in names[:limit]]

    async def key(self, name: KeyName) -> ApiKey | None:
        return self.state.keys.get(name)

    async def keys(self, query: KeyQuery) -> Sequence[ApiKey]:
        found = [key for key in self.state.keys.values() if self._fits(key, query)]
        return sorted(found, key=key_sort_key)[: query.limit]

    def _fits(self, key: ApiKey, query: KeyQuery) -> bool:
        return (
            key_sort_key(key) > query.after
            and (query.project is None or key.name.parent == query.project)
            and (query.live_at is None or self._lets_in(key, query.live_at))
            and (
                query.policy_at is None
                or (in_policy(key) and key.expire_time > query.policy_at - CLOCK_SKEW)
            )
        )

    def _state_of(self, key: ApiKey, now: datetime) -> KeyState:
        verifies = self.state.signing_keys[key.kid].verifies(now)
        return key.state(now) if verifies else KeyState.EXPIRED

    def _lets_in(self, key: ApiKey, now: datetime) -> bool:
        return self._state_of(key, now) in (KeyState.LIVE, KeyState.ROTATED)

    async def tags(self, owners: Collection[Owner]) -> Mapping[Owner, Tags]:
        found: dict[Owner, Tags] = {}
        for project, key in owners:
            one: Project | ApiKey | None = self.state.projects.get(ProjectName(project))
            if key:
                one = self.state.keys.get(KeyName(project, key))
            if one is not None and one.tags:
                found[project, key] = one.tags
        return found

    async def signing_keys(self) -> Sequence[SigningKey]:
        return sorted(self.state.signing_keys.values(), key=lambda key: (key.create_time, key.kid))

    async def admin_lives(self, now: datetime) -> bool:
        return any(
            key.role is Role.ADMIN
            and self._lets_in(key, now)
            and not self.state.projects[key.name.parent].disabled
            for key in self.state.keys.values()
        )

    async def count_keys(self, now: datetime) -> Mapping[KeyState, int]:
        found = Counter(self._state_of(key, now) for key in self.state.keys.values())
        return {state: found[state] for state in KeyState}


class _MemoryTransaction(_MemoryView):
    """Changes on a copy."""

    async def put_project(self, project: Project) -> None:
        self.state.projects[project.name] = project

    async def put_key(self, key: ApiKey) -> None:
        if key.name.parent not in self.state.projects or key.kid not in self.state.signing_keys:
            raise InternalError(f"{key.name} refers to what is not there")
        self.state.keys[key.name] = key

    async def put_signing_key(self, key: SigningKey) -> None:
        self.state.signing_keys[key.kid] = key


class MemoryIdentityStore:
    """An IdentityStore whose state is gone with the process."""

    def __init__(self) -> None:
        self._state = _State()
        self._writing = asyncio.Lock()

    def follow(self, taken: Callable[[Sequence[Record]], None]) -> None:
        """Nobody else writes."""

    async def read(self, work: Callable[[IdentityView], Awaitable[T]]) -> T:
        return await work(_MemoryView(self._state))

    async def write(
        self,
        work: Callable[[IdentityTransaction], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        return await to_completion(self._write(work, committed))

    async def _write(
        self,
        work: Callable[[IdentityTransaction], Awaitable[T]],
        committed: Callable[[T], None] | None,
    ) -> T:
        async with self._writing:
            transaction = _MemoryTransaction(self._state.copy())
            result = await work(transaction)
            self._state = transaction.state
            if committed is not None:
                committed(result)
            return result
