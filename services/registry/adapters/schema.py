"""The registry's schema: its migrations, brought to the newest at start."""

from pathlib import Path

from sqlalchemy import Connection

from services.rpc import schema

_MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(connection: Connection, to: str = "head") -> None:
    """Bring the registry's database to a migration, in the connection's transaction."""
    schema.migrate(connection, _MIGRATIONS, to)
