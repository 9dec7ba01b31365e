"""What processes on one Postgres told each other is forgotten in time, and who has missed it knows."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.metering.adapters import news
from services.metering.adapters.database import Database
from services.rpc.errors import UnavailableError
from tests.metering_postgres import target_of


class Heard:
    """A follower that remembers."""

    def __init__(self, database: Database) -> None:
        self.names: list[str] = []
        database.follow("t", lambda _, changed: self.names.extend(changed))


async def tell(database: Database, *names: str) -> None:
    for name in names:
        await database.write(lambda c, name=name: c.run_sync(news.note, "t", name))  # type: ignore[misc] # mypy infers no lambda with defaults


async def kept(connection: AsyncConnection) -> set[str]:
    rows = await connection.execute(
        sa.text("SELECT name FROM metering_changes WHERE topic <> 'forgotten'")
    )
    return {row[0] for row in rows}


async def test_old_changes_are_forgotten(
    metering_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a revision, some at a time; the last one of a topic stays, and who follows misses nothing."""
    monkeypatch.setattr(news, "_MOST_FORGOTTEN", 2)
    async with (
        Database.open(target_of(metering_url)) as first,
        Database.open(target_of(metering_url)) as second,
    ):
        heard = Heard(second)
        await tell(first, "a", "b", "c", "d")
        await second.catch_up()
        until = await first.newest_news()
        await first.write(lambda c: c.run_sync(news.note, "u", "alone"))
        await tell(first, "b", "e")
        assert [await first.forget_news(until) for _ in range(3)] == [2, 1, 0]
        assert await first.read(kept) == {"b", "e", "alone"}
        await second.catch_up()
        assert heard.names == ["a", "b", "c", "d", "b", "e"]
        newest = await second.newest_news()
        assert await second.forget_news(newest) == 1  # forgotten by another, and later ones
        assert await first.read(kept) == {"e", "alone"}
        await tell(second, "f")
        async with Database.open(target_of(metering_url)) as later:
            since = Heard(later)
            await tell(first, "g")
            await later.catch_up()
        assert since.names == ["g"]
        await second.catch_up()
        assert heard.names[6:] == ["f", "g"]


async def test_who_has_missed_something_knows(metering_url: str) -> None:
    """A process that was away for too long takes over nothing and writes nothing, and is told that it is behind."""
    async with (
        Database.open(target_of(metering_url)) as first,
        Database.open(target_of(metering_url)) as second,
    ):
        heard = Heard(second)
        await tell(first, "a", "b")
        await first.forget_news(await first.newest_news())
        for attempt in (second.catch_up, lambda: tell(second, "c")):
            with pytest.raises(UnavailableError) as caught:
                await attempt()
            assert caught.value.reason == "LEFT_BEHIND"
        async with asyncio.timeout(60):
            await second.left_behind()
        assert heard.names == []
        assert "c" not in await first.read(kept)


async def test_a_process_alone_tells_nobody(tmp_path: Path) -> None:
    """With SQLite there are no such rows."""
    async with Database.open(tmp_path / "m.db") as database:
        assert await database.newest_news() == 0
        assert await database.forget_news(1) == 0
