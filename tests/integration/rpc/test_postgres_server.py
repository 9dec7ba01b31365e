"""The Postgres that tests run on: fresh databases, a crash that loses nothing committed."""

import psycopg
import pytest

from tests.postgres import Databases, PostgresServer


def test_databases_are_fresh_and_go(postgres_databases: Databases) -> None:
    """Two databases are empty and know nothing of each other; used or not, they are gone afterwards."""
    with postgres_databases.fresh() as one, postgres_databases.fresh() as other:
        left = psycopg.connect(one)
        left.execute("CREATE TABLE t (x int)")
        left.commit()
        with psycopg.connect(other) as connection:
            assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(one)


def test_a_killed_server_keeps_what_was_committed(own_postgres: PostgresServer) -> None:
    """After kill -9 of all its processes the server starts again with what was committed."""
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        own_postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    own_postgres.start()
    with psycopg.connect(own_postgres.url) as connection:
        assert connection.execute("SELECT x FROM t").fetchone() == (1,)
    own_postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_postgres.url)
