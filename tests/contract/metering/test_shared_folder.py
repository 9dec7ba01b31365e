"""The folder that processes on one database share."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.metering.adapters.database import Database
from services.metering.adapters.shared_folder import require_shared
from services.rpc.errors import FailedPreconditionError
from tests.metering_postgres import MeteringDatabases, target_of


def folders(place: Path) -> tuple[Path, Path]:
    for name in "ab":
        (place / name).mkdir()
    return place / "a", place / "b"


async def test_a_folder_of_its_own_is_refused(metering_url: str, tmp_path: Path) -> None:
    """1. who is first says which; 2. another is refused, and nothing is in it; 3. that goes for both ways round."""
    one, other = folders(tmp_path)
    async with (
        Database.open(target_of(metering_url)) as first,
        Database.open(target_of(metering_url)) as second,
    ):
        await require_shared(first, one)
        await require_shared(second, one)
        with pytest.raises(
            FailedPreconditionError, match=r"no folder\.id.*INFERPLANE_STATE_DIR"
        ) as caught:
            await require_shared(second, other)
    assert caught.value.reason == "FOLDER_OF_ANOTHER"
    assert not list(other.iterdir())
    (other / "folder.id").write_text("of another database\n")
    (other / "folder.id").chmod(0o600)
    async with Database.open(target_of(metering_url)) as again:
        await require_shared(again, one)
        with pytest.raises(FailedPreconditionError, match=r"another folder\.id"):
            await require_shared(again, other)


async def test_of_two_at_once_one_folder_counts(metering_url: str, tmp_path: Path) -> None:
    """Started at the same moment with a folder each, one process is refused."""
    async with (
        Database.open(target_of(metering_url)) as first,
        Database.open(target_of(metering_url)) as second,
    ):
        pairs = zip((first, second), folders(tmp_path), strict=True)
        ends = await asyncio.gather(
            *(require_shared(*pair) for pair in pairs), return_exceptions=True
        )
    assert sorted(type(end).__name__ for end in ends) == ["FailedPreconditionError", "NoneType"]


async def test_a_new_database_takes_the_folder_that_is_there(
    metering_databases: MeteringDatabases, tmp_path: Path
) -> None:
    """As after a restore into an empty database, with the folder of before: from then on that one counts."""
    one, other = folders(tmp_path)
    for _ in range(2):
        with metering_databases.fresh() as url:
            async with Database.open(target_of(url)) as database:
                await require_shared(database, one)
                with pytest.raises(FailedPreconditionError):
                    await require_shared(database, other)


async def test_a_folder_that_is_lost_is_given_up(metering_url: str, tmp_path: Path) -> None:
    """As the error says, the first one after the row is gone counts."""
    one, other = folders(tmp_path)
    async with Database.open(target_of(metering_url)) as database:
        await require_shared(database, one)
        await database.write(lambda c: c.execute(sa.text("DELETE FROM metering_folder")))
        await require_shared(database, other)
        with pytest.raises(FailedPreconditionError):
            await require_shared(database, one)


async def test_a_file_is_its_folders_own(tmp_path: Path) -> None:
    """With SQLite there is nothing to compare, and nothing is written."""
    async with Database.open(tmp_path / "m.db") as database:
        one, _ = folders(tmp_path)
        await require_shared(database, one)
        assert not list(one.iterdir())
