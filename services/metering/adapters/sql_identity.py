"""The store of identities in metering's database."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters.database import Database
from services.metering.adapters.identity_tables import api_keys, projects, signing_keys
from services.metering.adapters.news import note
from services.metering.adapters.statements import POSTGRES, Among, run
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
    microseconds,
)
from services.rpc.names import KeyName, ProjectName

T = TypeVar("T")

# A field with a default may be missing in text that an older release wrote.
_PROJECT = TypeAdapter(Project)
_API_KEY = TypeAdapter(ApiKey)
_SIGNING_KEY = TypeAdapter(SigningKey)

# However many are wanted, one statement finds them, and those without tags don't come.
_TAGS_OF_PROJECTS = (
    "SELECT * FROM (SELECT id, '', {tags} AS tags FROM projects WHERE id AMONG ?) AS found"
    " WHERE tags <> '{{}}'"
)
_TAGS_OF_KEYS = (
    "SELECT * FROM (SELECT project, id, {tags} AS tags FROM api_keys WHERE id AMONG ?) AS found"
    " WHERE tags <> '{{}}'"
)
# Not as jsonb, which takes no texts that hold the character 0.
_TAGS = {POSTGRES: "(body::json -> 'tags')::text", "sqlite": "json_extract(body, '$.tags')"}


def _lets_in(now: int) -> sa.ColumnElement[bool]:
    """Of a key joined with its signing key: whether it lets in."""
    return sa.and_(
        api_keys.c.expire_us > now,
        sa.or_(api_keys.c.revoke_us.is_(None), api_keys.c.revoke_us > now),
        sa.or_(signing_keys.c.retire_us.is_(None), signing_keys.c.retire_us > now),
    )


def _state(now: int) -> sa.ColumnElement[str]:
    """Of a key joined with its signing key: the name of its state."""
    over = sa.or_(
        api_keys.c.expire_us <= now,
        sa.and_(signing_keys.c.retire_us.is_not(None), signing_keys.c.retire_us <= now),
    )
    return sa.case(
        (over, KeyState.EXPIRED.value),
        (api_keys.c.revoke_us.is_(None), KeyState.LIVE.value),
        (api_keys.c.revoke_us > now, KeyState.ROTATED.value),
        else_=KeyState.REVOKED.value,
    )


class SqlIdentityView:
    """Reads inside one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def project(self, name: ProjectName) -> Project | None:
        wanted = sa.select(projects.c.body).where(projects.c.id == name.project)
        body = await self._connection.scalar(wanted)
        return None if body is None else _PROJECT.validate_json(body)

    async def projects(self, after: str, limit: int) -> Sequence[Project]:
        wanted = (
            sa.select(projects.c.body)
            .where(projects.c.id > after)
            .order_by(projects.c.id)
            .limit(limit)
        )
        bodies = (await self._connection.scalars(wanted)).all()
        return [_PROJECT.validate_json(body) for body in bodies]

    async def key(self, name: KeyName) -> ApiKey | None:
        wanted = sa.select(api_keys.c.body).where(
            api_keys.c.id == name.key, api_keys.c.project == name.project
        )
        body = await self._connection.scalar(wanted)
        return None if body is None else _API_KEY.validate_json(body)

    async def keys(self, query: KeyQuery) -> Sequence[ApiKey]:
        wanted = (
            sa.select(api_keys.c.body)
            .where(api_keys.c.sort_key > query.after)
            .order_by(api_keys.c.sort_key)
            .limit(query.limit)
        )
        if query.project is not None:
            wanted = wanted.where(api_keys.c.project == query.project.project)
        if query.live_at is not None:
            wanted = wanted.join(signing_keys, signing_keys.c.kid == api_keys.c.kid).where(
                _lets_in(microseconds(query.live_at))
            )
        if query.policy_at is not None:
            wanted = wanted.where(
                api_keys.c.in_policy,
                api_keys.c.expire_us > microseconds(query.policy_at - CLOCK_SKEW),
            )
        bodies = (await self._connection.scalars(wanted)).all()
        return [_API_KEY.validate_json(body) for body in bodies]

    async def tags(self, owners: Collection[Owner]) -> Mapping[Owner, Tags]:
        rows: list[Sequence[str]] = []
        for statement, wanted in (
            (_TAGS_OF_PROJECTS, {project for project, key in owners if not key}),
            (_TAGS_OF_KEYS, {key for _, key in owners if key}),
        ):
            said = statement.format(tags=_TAGS[self._connection.dialect.name])
            if wanted:
                found = await self._connection.run_sync(run, said, (Among(sorted(wanted)),))
                rows += found.all()
        return await asyncio.to_thread(_tags, rows, owners)  # of many rows it takes long

    async def signing_keys(self) -> Sequence[SigningKey]:
        wanted = sa.select(signing_keys.c.body).order_by(
            signing_keys.c.create_us, signing_keys.c.kid
        )
        bodies = (await self._connection.scalars(wanted)).all()
        return [_SIGNING_KEY.validate_json(body) for body in bodies]

    async def admin_lives(self, now: datetime) -> bool:
        wanted = (
            sa.select(projects.c.body)
            .join(api_keys, api_keys.c.project == projects.c.id)
            .join(signing_keys, signing_keys.c.kid == api_keys.c.kid)
            .where(api_keys.c.role == Role.ADMIN.value, _lets_in(microseconds(now)))
            .distinct()
        )
        bodies = (await self._connection.scalars(wanted)).all()
        return any(not _PROJECT.validate_json(body).disabled for body in bodies)

    async def count_keys(self, now: datetime) -> Mapping[KeyState, int]:
        state = _state(microseconds(now)).label("state")
        wanted = (
            sa.select(state, sa.func.count())
            .join(signing_keys, signing_keys.c.kid == api_keys.c.kid)
            .group_by(state)
        )
        rows = (await self._connection.execute(wanted)).all()
        found = {KeyState(value): count for value, count in rows}
        return {state: found.get(state, 0) for state in KeyState}


def _tags(rows: Sequence[Sequence[str]], owners: Collection[Owner]) -> Mapping[Owner, Tags]:
    wanted = set(owners)
    return {(row[0], row[1]): json.loads(row[2]) for row in rows if (row[0], row[1]) in wanted}


class SqlIdentityTransaction(SqlIdentityView):
    """Reads and writes inside one transaction."""

    async def put_project(self, project: Project) -> None:
        row = {"body": _PROJECT.dump_json(project).decode()}
        await self._put(projects, projects.c.id, project.name.project, row)
        await self._note(projects, project.name.project)

    async def put_key(self, key: ApiKey) -> None:
        row = {
            "project": key.name.project,
            "kid": key.kid,
            "role": key.role.value,
            "sort_key": key_sort_key(key),
            "expire_us": microseconds(key.expire_time),
            "revoke_us": None if key.revoke_time is None else microseconds(key.revoke_time),
            "in_policy": in_policy(key),
            "body": _API_KEY.dump_json(key).decode(),
        }
        is_new = await self._put(api_keys, api_keys.c.id, key.name.key, row)
        if in_policy(key) or not is_new:  # nobody else keeps anything of the others
            await self._note(api_keys, key.name.key)

    async def put_signing_key(self, key: SigningKey) -> None:
        row = {
            "create_us": microseconds(key.create_time),
            "retire_us": None if key.retire_time is None else microseconds(key.retire_time),
            "body": _SIGNING_KEY.dump_json(key).decode(),
        }
        await self._put(signing_keys, signing_keys.c.kid, key.kid, row)
        await self._note(signing_keys, key.kid)

    async def _put(
        self, table: sa.Table, id_column: sa.Column[Any], id_: str, row: Mapping[str, object]
    ) -> bool:
        """Whether it is new."""
        updated = await self._connection.execute(
            table.update().where(id_column == id_).values(**row)
        )
        if updated.rowcount == 0:
            await self._connection.execute(table.insert().values({id_column.name: id_, **row}))
            return True
        return False

    async def _note(self, table: sa.Table, name: str) -> None:
        if self._connection.dialect.name == POSTGRES:
            await self._connection.run_sync(note, table.name, name)


@dataclass(frozen=True, slots=True)
class _Follower:
    """Reads records of a table that other processes changed."""

    taken: Callable[[Sequence[Record]], None]
    table: sa.Table
    id_column: sa.Column[str]
    read: TypeAdapter[Any]

    def __call__(self, connection: sa.Connection, names: Mapping[str, int]) -> None:
        statement = f"SELECT body FROM {self.table.name} WHERE {self.id_column.name} AMONG ?"  # noqa: S608
        bodies = run(connection, statement, (Among(list(names)),)).scalars()
        self.taken([self.read.validate_json(body) for body in bodies])


class SqlIdentityStore:
    """An IdentityStore in the database of metering."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def follow(self, taken: Callable[[Sequence[Record]], None]) -> None:
        for table, id_column, read in (
            (signing_keys, signing_keys.c.kid, _SIGNING_KEY),
            (projects, projects.c.id, _PROJECT),
            (api_keys, api_keys.c.id, _API_KEY),
        ):
            self._database.follow(table.name, _Follower(taken, table, id_column, read))

    async def read(self, work: Callable[[IdentityView], Awaitable[T]]) -> T:
        return await self._database.read(lambda connection: work(SqlIdentityView(connection)))

    async def write(
        self,
        work: Callable[[IdentityTransaction], Awaitable[T]],
        committed: Callable[[T], None] | None = None,
    ) -> T:
        return await self._database.write(
            lambda connection: work(SqlIdentityTransaction(connection)), committed
        )
