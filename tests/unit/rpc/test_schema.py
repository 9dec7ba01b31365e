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
from services.rpc import schema

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


def test_a_database_that_is_up_to_date_needs_no_alembic(tmp_path: Path) -> None:
    """Only the first start on a file pays for its import."""
    code = (
        "import sys; import sqlalchemy as sa; from services.registry.adapters.schema import migrate;"
        f"e = sa.create_engine('sqlite:///{tmp_path}/s.db');"
        "c = e.connect(); t = c.begin(); migrate(c); t.commit(); print('alembic' in sys.modules)"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert told == ["True\n", "False\n"]
    with sa.create_engine(f"sqlite:///{tmp_path}/s.db").connect() as connection:
        assert sa.inspect(connection).has_table("resources")
