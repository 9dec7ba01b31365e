"""The ledger store in the database."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from services.metering.adapters import sql_entries, sql_subjects, sql_verify
from services.metering.adapters.database import Database
from services.metering.adapters.statements import Among, run
from services.metering.domain.ledger import Entry, EntryKind, Posting
from services.metering.domain.verification import Verification
from services.metering.ports.ledger_store import StoredEntry
from services.rpc.errors import AlreadyExistsError


class SqlLedger:
    """A LedgerStore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._verifying = asyncio.Lock()

    async def append(self, entry: Entry, postings: Sequence[Posting]) -> StoredEntry:
        return await self._database.write(
            lambda connection: connection.run_sync(_append, entry, postings)
        )

    async def get(self, number: int) -> StoredEntry | None:
        found = await self._database.read(
            lambda connection: connection.run_sync(_by_numbers, [number])
        )
        return found[0] if found else None

    async def entries(
        self, account_prefix: str, kind: EntryKind | None, before: int, most: int
    ) -> Sequence[StoredEntry]:
        return await self._database.read(
            lambda connection: connection.run_sync(_listed, account_prefix, kind, before, most)
        )

    async def balances(self, account_prefix: str) -> Mapping[str, int]:
        return await self._database.read(
            lambda connection: connection.run_sync(sql_entries.balances, account_prefix)
        )

    async def verify(self, known_number: int, known_hash: bytes) -> Verification:
        async with self._verifying:  # one after the other: each reads everything
            return await self._database.read_apart(
                lambda connection: sql_verify.verify(connection, known_number, known_hash)
            )


def _append(connection: sa.Connection, entry: Entry, postings: Sequence[Posting]) -> StoredEntry:
    if entry.request_key is not None:
        known = run(
            connection,
            "SELECT number FROM ledger_entries WHERE request_key = ?",
            (entry.request_key,),
        ).scalar_one_or_none()
        if known is not None:
            return _repeated(_by_numbers(connection, [known])[0], entry, postings)
    stored, own = sql_entries.append(connection, entry, postings)
    return StoredEntry(stored, postings, {}, own)


def _repeated(known: StoredEntry, entry: Entry, postings: Sequence[Posting]) -> StoredEntry:
    same = replace(entry, number=known.entry.number, create_us=known.entry.create_us)
    if same != known.entry or list(postings) != list(known.postings):
        raise AlreadyExistsError(
            f"ledgerEntries/{known.entry.number} has this request_id and says something else",
            reason="REQUEST_ID_USED",
            metadata={"entry": f"ledgerEntries/{known.entry.number}"},
        )
    return known


def _by_numbers(connection: sa.Connection, numbers: Sequence[int]) -> list[StoredEntry]:
    """These entries, newest first."""
    if not numbers:
        return []
    entries = sql_entries.read_entries(
        run(
            connection,
            f"SELECT {sql_entries.ENTRY_FIELDS} FROM ledger_entries AS e"  # noqa: S608
            " WHERE e.number AMONG ? ORDER BY e.number DESC",
            (Among(list(numbers)),),
        )
    )
    postings = {
        entry.number: sql_entries.postings_of(connection, entry.number, entry.number).get(
            entry.number, []
        )
        for entry, _ in entries
    }
    wanted = {p.subject for ones in postings.values() for p in ones} - {0}
    subjects = sql_subjects.load(connection, sorted(wanted))
    return [StoredEntry(entry, postings[entry.number], subjects, own) for entry, own in entries]


def _listed(
    connection: sa.Connection, prefix: str, kind: EntryKind | None, before: int, most: int
) -> list[StoredEntry]:
    conditions, values = ["1 = 1"], list[object]()
    if before:
        conditions.append("e.number < ?")
        values.append(before)
    if kind is not None:
        conditions.append("e.kind = ?")
        values.append(int(kind))
    if prefix:
        conditions.append(
            "EXISTS (SELECT 1 FROM ledger_postings AS p WHERE p.entry = e.number AND p.account IN"
            " (SELECT id FROM ledger_accounts WHERE substr(name, 1, ?) = ?))"
        )
        values += [len(prefix), prefix]
    numbers = run(
        connection,
        f"SELECT e.number FROM ledger_entries AS e WHERE {' AND '.join(conditions)}"  # noqa: S608
        " ORDER BY e.number DESC LIMIT ?",
        (*values, most),
    )
    return _by_numbers(connection, list(numbers.scalars()))
