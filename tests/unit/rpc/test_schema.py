"""A database's schema: what is to be done is known without Alembic where that is nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from services.metering.adapters import database
from services.registry.adapters import schema as registry_schema
from services.rpc import fresh_schema, schema

FOLDERS = [
    Path(str(module.__file__)).with_name("migrations") for module in (database, registry_schema)
]


@pytest.mark.parametrize("folder", FOLDERS, ids=["metering", "registry"])
def test_the_newest_migration_is_alembics(folder: Path) -> None:
    """What the files say is what Alembic makes of them."""
    config = Config()
    config.set_main_option("script_location", str(folder))
    assert schema.newest(folder) == ScriptDirectory.from_config(config).get_current_head()


def test_two_newest_migrations_are_none(tmp_path: Path) -> None:
    """Where two follow the same one, Alembic is to say what is wrong."""
    (tmp_path / "versions").mkdir()
    for revision in ("0002", "0003"):
        text = f'revision = "{revision}"\ndown_revision = "0001"\n'
        (tmp_path / "versions" / f"m{revision}.py").write_text(text)
    assert schema.newest(tmp_path) is None


@pytest.mark.parametrize("folder", FOLDERS, ids=["metering", "registry"])
def test_new_files_get_what_the_migrations_make(folder: Path) -> None:
    """Otherwise: `python -m services.rpc.schema services/*/adapters/migrations`. Migrations write no rows."""
    assert (folder / fresh_schema.FILE).read_text() == schema.fresh_text(folder)
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        assert fresh_schema.make(connection, folder / fresh_schema.FILE, schema.newest(folder))
        found = fresh_schema.text_of(connection, str(schema.newest(folder)))
        assert found == schema.fresh_text(folder)
    engine.dispose()


def test_what_was_made_for_other_migrations_is_not_used() -> None:
    """Who forgets to write it anew gets the new migration all the same."""
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        assert not fresh_schema.make(connection, FOLDERS[0] / fresh_schema.FILE, "9999")
        assert sa.inspect(connection).get_table_names() == []
    engine.dispose()


def test_only_an_older_database_needs_alembic(tmp_path: Path) -> None:
    """A new file, then the same again, then one that was brought down by a migration."""
    code = (
        "import sys; import sqlalchemy as sa; from services.registry.adapters.schema import migrate;"
        f"e = sa.create_engine('sqlite:///{tmp_path}/s.db');"
        "c = e.connect(); t = c.begin(); migrate(c); print('alembic' in sys.modules);"
        "migrate(c, sys.argv[1]); t.commit()"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code, then], capture_output=True, text=True, check=True
        ).stdout
        for then in ("head", "0001", "head")
    ]
    assert told == ["False\n", "False\n", "True\n"]
