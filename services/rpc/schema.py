"""A database's schema: brought to the newest migration at start, refused if it is newer than this release."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from services.rpc.errors import FailedPreconditionError


def migrate(connection: Connection, migrations: Path, to: str = "head") -> None:
    """Bring the database to a migration, up or down, in the connection's transaction.

    Args:
        connection: in a transaction that writes.
        migrations: the folder with Alembic's `env.py` and `versions/`.
        to: a migration, `head` or `base`.
    """
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in known:
        raise FailedPreconditionError(
            f"the database {connection.engine.url.database} has schema {current}, but this release of"
            f" inferplane knows {known[-1]} to {known[0]} only; run the newer release",
            reason="DATABASE_TOO_NEW",
            metadata={"schema": current, "newest": known[0]},
        )
    steps = [*reversed(known), "head"]
    if current is not None and to != "head" and to != current:
        going_down = to == "base" or steps.index(to) < steps.index(current)
        (command.downgrade if going_down else command.upgrade)(config, to)
    else:
        command.upgrade(config, to)
