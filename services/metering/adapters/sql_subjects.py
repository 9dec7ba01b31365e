"""Subjects and accounts in the database: each is written once and has a number."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from services.metering.adapters.statements import POSTGRES, Among, run
from services.metering.domain.usage import Kind, Subject

_FIELDS = ("project", "key", "endpoint", "model", "version", "digest", "kind", "pool")
_INSERT = (
    f"INSERT INTO usage_subjects ({', '.join(_FIELDS)})"  # noqa: S608 - names of ours
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_FIND = (
    "SELECT s.id FROM json_each(?) AS wanted JOIN usage_subjects AS s ON "  # noqa: S608
    + " AND ".join(
        f"s.{name} = json_extract(wanted.value, '$[{i}]')" for i, name in enumerate(_FIELDS)
    )
    + " ORDER BY wanted.key"
)
_FIND_IN_POSTGRES = (
    "SELECT s.id FROM unnest("  # noqa: S608
    + ", ".join("?::bigint[]" if name == "kind" else "?::text[]" for name in _FIELDS)
    + ")"
    f" WITH ORDINALITY AS wanted({', '.join(_FIELDS)}, place) JOIN usage_subjects AS s ON "
    + " AND ".join(f"s.{name} = wanted.{name}" for name in _FIELDS)
    + " ORDER BY wanted.place"
)
_SELECT = f"SELECT id, {', '.join(_FIELDS)} FROM usage_subjects"  # noqa: S608


def numbers(connection: sa.Connection, subjects: Sequence[Subject]) -> list[int]:
    """The subjects' numbers, in their order; new ones get one."""
    values = [subject.words for subject in subjects]
    found = _find(connection, values)
    if len(found) < len(values):
        run(connection, _INSERT, values)
        found = _find(connection, values)
    return found


def _find(connection: sa.Connection, values: Sequence[tuple[str | int, ...]]) -> list[int]:
    if connection.dialect.name == POSTGRES:
        columns = tuple(list(column) for column in zip(*values, strict=True))
        return list(run(connection, _FIND_IN_POSTGRES, columns).scalars()) if values else []
    return list(run(connection, _FIND, (json.dumps(values),)).scalars())


def _subject(row: Sequence[Any]) -> Subject:
    return Subject(
        project=row[1],
        key=row[2],
        endpoint=row[3],
        model=row[4],
        version=row[5],
        digest=row[6],
        kind=Kind(row[7]),
        pool=row[8],
    )


def load(connection: sa.Connection, wanted: Sequence[int] | None = None) -> dict[int, Subject]:
    """Subjects by their numbers; None: all."""
    if wanted is None:
        rows = run(connection, _SELECT)
    else:
        rows = run(
            connection,
            f"{_SELECT} WHERE id AMONG ?",
            (Among(wanted),),
        )
    return {row[0]: _subject(row) for row in rows}


def sources(connection: sa.Connection) -> dict[int, str]:
    """Names of outboxes by their numbers."""
    return {row[0]: row[1] for row in run(connection, "SELECT id, source FROM usage_sources")}


def account_numbers(connection: sa.Connection, names: Sequence[str]) -> dict[str, int]:
    """Accounts' numbers by their names; new ones get one."""
    asked = (Among(sorted(set(names))),)
    find = "SELECT name, id FROM ledger_accounts WHERE name AMONG ?"
    found = _named(connection, find, asked)
    missing = [(name,) for name in dict.fromkeys(names) if name not in found]
    if not missing:
        return found
    run(connection, "INSERT INTO ledger_accounts (name) VALUES (?)", missing)
    return _named(connection, find, asked)


def _named(connection: sa.Connection, statement: str, asked: tuple[Among]) -> dict[str, int]:
    return {row[0]: row[1] for row in run(connection, statement, asked)}
