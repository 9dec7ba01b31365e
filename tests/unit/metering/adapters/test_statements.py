"""Statements as each engine takes them."""

import pytest
import sqlalchemy as sa

from services.metering.adapters.statements import Among, run, said
from services.rpc.postgres import open_blocking_engine
from tests.metering_postgres import target_of


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        pytest.param(
            "sqlite",
            "SELECT a % 2 FROM t CROSS JOIN u ON u.a = ? WHERE b IN (SELECT value FROM json_each(?))",
            id="to SQLite",
        ),
        pytest.param(
            "postgresql",
            "SELECT a %% 2 FROM t JOIN u ON u.a = %s WHERE b = ANY(%s)",
            id="to Postgres",
        ),
    ],
)
def test_a_statement_is_said_to_each_engine(dialect: str, expected: str) -> None:
    """Values, lists of values, joins in order, and a percent sign that is one."""
    statement = "SELECT a % 2 FROM t CROSS JOIN u ON u.a = ? WHERE b AMONG ?"
    assert said(statement, dialect) == expected


ROWS = [
    (1, "plain", b""),
    (2**63 - 1, 'quote " back \\ slash {a,b} NULL', bytes(range(256))),
    (-(2**63), "ünïcode \n tab\t ' %s ?", b"\\x41"),
    (0, "", b'"'),
    (7, "NULL", b"NULL"),
]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_many_rows_come_back_as_they_were(engine: str, request: pytest.FixtureRequest) -> None:
    """Any number, text and bytes, in their order; one of a key that is there changes it."""
    opened = sa.create_engine("sqlite://")
    if engine == "postgres":
        opened = open_blocking_engine(target_of(request.getfixturevalue("postgres_url")))
    with opened.connect() as connection:
        kinds = "id BIGINT PRIMARY KEY, word TEXT, bytes " + (
            "BYTEA" if engine == "postgres" else "BLOB"
        )
        run(connection, f"CREATE TABLE t ({kinds})")
        insert = (
            "INSERT INTO t (id, word, bytes) VALUES (?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET word = excluded.word"
        )
        run(connection, insert, ROWS)
        asked = (Among([row[0] for row in ROWS]),)
        found = run(connection, "SELECT id, word, bytes FROM t WHERE id AMONG ?", asked).all()
        assert [tuple(row) for row in found] == sorted(ROWS) or [
            tuple(row) for row in found
        ] == ROWS
        run(connection, insert, [(1, "other", b"x"), (2, "new", b"y")])
        words = run(connection, "SELECT word FROM t WHERE id < 3 AND id > 0 ORDER BY id").scalars()
        assert list(words) == ["other", "new"]
        assert run(connection, "SELECT 1 FROM t WHERE word AMONG ?", (Among([]),)).all() == []
    opened.dispose()
