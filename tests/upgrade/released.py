"""Databases as the first release left them, with a mesh's data in them."""

import sqlite3
from contextlib import closing
from pathlib import Path

RELEASE = "0.1.0"
# `newest` of `inferplane ledger verify`, as that release told it.
LEDGER_HEAD = 9, bytes.fromhex("564515ddb9ff81a2115c26078872106114ae62e7df7e35abf6ebe2ac21bb3ec8")


def write(service: str, path: Path) -> Path:
    """Make the database of a service as the release had it."""
    text = Path(__file__).with_name(f"{service}-{RELEASE}.sql").read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
        connection.execute("PRAGMA journal_mode=WAL")
    return path


def shape(path: Path) -> list[tuple[str, str, str]]:
    """Tables with their columns, indexes and triggers, without the form in which they were declared."""
    with closing(sqlite3.connect(path)) as connection:
        found = [
            (kind, name, sql or "")
            for kind, name, sql in connection.execute(
                "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            )
        ]
        columns = {
            name: str(connection.execute(f"PRAGMA table_xinfo({name})").fetchall())
            for kind, name, _ in found
            if kind == "table"
        }
    return sorted(
        (kind, name, columns[name] if kind == "table" else " ".join(sql.split()))
        for kind, name, sql in found
    )


def rows(path: Path) -> dict[str, list[str]]:
    """All rows of all tables but the migrations' own, as text."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name != "alembic_version" and not name.startswith("sqlite_")
        ]
        return {
            name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}"))) for name in tables
        }
