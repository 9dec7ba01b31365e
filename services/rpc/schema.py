"""A database's schema: brought to the newest migration at start, refused if it is newer than this release.

`python -m services.rpc.schema FOLDER ...` writes what new SQLite files get, after a migration was added.
"""

import re
import sys
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from services.rpc import fresh_schema
from services.rpc.errors import FailedPreconditionError

_REVISION = re.compile(r'^revision = "(\w+)"$', re.MULTILINE)
_BEFORE = re.compile(r'^down_revision = "(\w+)"$', re.MULTILINE)
_AT = sa.table("alembic_version", sa.column("version_num"))


def migrate(connection: Connection, migrations: Path, to: str = "head") -> None:
    """Bring the database to a migration, up or down, in the connection's transaction.

    Args:
        connection: in a transaction that writes.
        migrations: the folder with Alembic's `env.py` and `versions/`.
        to: a migration, `head` or `base`.
    """
    if to == "head":
        last = newest(migrations)
        if _current(connection) == {last}:
            return
        if fresh_schema.make(connection, migrations / fresh_schema.FILE, last):
            return
    by_alembic(connection, migrations, to)


def newest(migrations: Path) -> str | None:
    """The migration that no other follows, as their files say; None if that is not exactly one."""
    texts = [path.read_text() for path in (migrations / "versions").glob("*.py")]
    known = {found for text in texts for found in _REVISION.findall(text)}
    last = known - {found for text in texts for found in _BEFORE.findall(text)}
    return last.pop() if len(last) == 1 else None


def _current(connection: Connection) -> set[str]:
    """What Alembic has noted in the database."""
    if not sa.inspect(connection).has_table(_AT.name):
        return set()
    return set(connection.scalars(sa.select(_AT.c.version_num)))


def by_alembic(connection: Connection, migrations: Path, to: str) -> None:
    """The same with Alembic, whatever is there."""
    # It takes longer to import than all else here, and most starts find nothing to do.
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

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


def fresh_text(migrations: Path) -> str:
    """What `fresh_schema` makes of a new file, as these migrations would."""
    engine = sa.create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            by_alembic(connection, migrations, "head")
            return fresh_schema.text_of(connection, str(newest(migrations)))
    finally:
        engine.dispose()


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        (folder / fresh_schema.FILE).write_text(fresh_text(folder))
