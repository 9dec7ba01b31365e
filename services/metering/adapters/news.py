"""News of a database that several processes share: who wrote what, and what each of them has not seen yet.

A row of `metering_changes` says under which revision a thing changed last. Revisions are drawn under the lock that
every write takes, so they are committed in their order, and who has seen one has seen all before it.

Old rows are forgotten, and a row of their own topic says up to where: a process that has not seen so much has missed
something, and must begin again.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters.statements import POSTGRES, run
from services.rpc.errors import UnavailableError

CHANNEL = "inferplane_metering"  # of NOTIFY
# Given the things of a topic that changed and their revisions; reads them on the connection and takes them over.
Follower: TypeAlias = Callable[[sa.Connection, Mapping[str, int]], None]

_NONCE_BYTES = 16
_KEPT_WRITERS = 1000  # processes whose last write can be told of
_BEGIN = (
    "SELECT nextval('metering_process'), (SELECT coalesce(max(revision), 0) FROM metering_changes)"
)
_FORGET_WRITERS = "DELETE FROM metering_writers WHERE process <= ?"
_CHANGES = "SELECT topic, name, revision FROM metering_changes WHERE revision > ? ORDER BY revision"
# Who writes and what nobody else would write, in the transaction that asks for the news. A process that freezes in
# its write holds up all others, so Postgres ends that soon.
_SIGN = (
    "WITH patience AS MATERIALIZED ("  # noqa: S608 - words of ours
    "SELECT set_config('idle_in_transaction_session_timeout', '5s', true)),"
    " signed AS (INSERT INTO metering_writers (process, nonce)"
    " SELECT ?::bigint, ?::bytea FROM patience"
    f" ON CONFLICT (process) DO UPDATE SET nonce = excluded.nonce) {_CHANGES}"
)
_SIGNED = "SELECT count(*) FROM metering_writers WHERE process = ? AND nonce = ?"
_NOTE = (
    "WITH noted AS (INSERT INTO metering_changes (topic, name, revision)"  # noqa: S608 - words of ours
    " VALUES (?, ?, nextval('metering_revision'))"
    " ON CONFLICT (topic, name) DO UPDATE SET revision = excluded.revision RETURNING revision)"
    f" SELECT pg_notify('{CHANNEL}', ''), revision FROM noted"
)
_FORGOTTEN = (
    "forgotten"  # the topic whose one row is named by the highest revision that was forgotten
)
_MOST_FORGOTTEN = 10_000  # rows at once
_TOLD_FORGOTTEN = "SELECT coalesce(max(name::bigint), 0) FROM metering_changes WHERE topic = ?"
# The last change of a topic stays: what is loaded later goes on from its revision.
_FORGET = (
    "DELETE FROM metering_changes WHERE (topic, name) IN (SELECT c.topic, c.name FROM metering_changes c"
    " JOIN (SELECT topic, max(revision) AS last FROM metering_changes GROUP BY topic) l ON l.topic = c.topic"
    " WHERE c.revision <= ? AND c.revision < l.last ORDER BY c.revision LIMIT ?)"
)


def newest(connection: sa.Connection) -> int:
    """The revision of the last change that is known."""
    return int(
        run(connection, "SELECT coalesce(max(revision), 0) FROM metering_changes").scalar_one()
    )


def forget(connection: sa.Connection, until: int) -> int:
    """Forget some changes up to a revision, in a write; how many rows that were, 0: there are no more."""
    told = int(run(connection, _TOLD_FORGOTTEN, (_FORGOTTEN,)).scalar_one())
    forgotten = run(connection, _FORGET, (until, _MOST_FORGOTTEN)).rowcount
    if forgotten and until > told:
        run(connection, "DELETE FROM metering_changes WHERE topic = ?", (_FORGOTTEN,))
        note(connection, _FORGOTTEN, str(until))
    return forgotten


def note(connection: sa.Connection, topic: str, name: str) -> int:
    """Tell other processes, once this transaction is committed, that a thing changed.

    Returns under which revision; 0 if the database is shared with none.
    """
    if connection.dialect.name != POSTGRES:
        return 0
    return int(run(connection, _NOTE, (topic, name)).one()[1])


class News:
    """What this process has seen of the others' writes. One caller at a time."""

    def __init__(self, process: int, seen: int) -> None:
        self.process = process  # no other one has this number
        self._seen = seen
        self._followers: dict[str, Follower] = {}
        self._nonce = b""
        self.missed = asyncio.Event()  # something was forgotten before it was seen here

    @classmethod
    async def begun(cls, connection: AsyncConnection) -> "News":
        """From now on; before anything is read that is to be followed."""

        def work(plain: sa.Connection) -> tuple[int, int]:
            process, seen = run(plain, _BEGIN).one()
            run(plain, _FORGET_WRITERS, (process - _KEPT_WRITERS,))
            return process, seen

        return cls(*await connection.run_sync(work))

    def follow(self, topic: str, follower: Follower) -> None:
        """Have a follower hear of a topic."""
        self._followers[topic] = follower

    def sign(self, connection: sa.Connection) -> None:
        """Begin a write: everything that others wrote before it is taken over."""
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        values = (self.process, self._nonce, self._seen)
        self._take(connection, run(connection, _SIGN, values).all())

    async def is_signed(self, connection: AsyncConnection) -> bool:
        """Whether the write that was begun last has been committed: by what it wrote, which no other one would."""
        values = (self.process, self._nonce)
        return bool(await connection.run_sync(lambda c: run(c, _SIGNED, values).scalar_one()))

    def catch_up(self, connection: sa.Connection) -> None:
        """Take over what others wrote."""
        self._take(connection, run(connection, _CHANGES, (self._seen,)).all())

    def _take(self, connection: sa.Connection, rows: Sequence[sa.Row[*tuple[Any, ...]]]) -> None:
        if any(topic == _FORGOTTEN and int(name) > self._seen for topic, name, _ in rows):
            self.missed.set()
            raise left_behind()
        changed: dict[str, dict[str, int]] = {}
        for topic, name, revision in rows:
            changed.setdefault(topic, {})[name] = revision
        for topic, names in changed.items():
            if follower := self._followers.get(topic):
                follower(connection, names)
        if rows:
            self._seen = rows[-1][2]


def left_behind() -> UnavailableError:
    """What others wrote is not there any more to be read; nothing was changed."""
    return UnavailableError(
        "this process has not reached the database for longer than changes are kept there (a day), and must be"
        " started again",
        reason="LEFT_BEHIND",
        retry_after=1.0,
    )
