"""Watches, on the store in memory."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.catalog import ALL_KINDS, ChangeSet, ResourceKind
from services.registry.drivers.watch import Watches, Watching
from services.registry.ports.store import Transaction
from services.rpc.errors import InvalidArgumentError, OutOfRangeError
from tests.unit.registry import records

FIRST = 100


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(first_revision=FIRST, kept_changes=5000)


async def put(store: MemoryStore, name: str, description: str = "") -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.put(records.model(name, description))

    await store.write(work)


def follow(
    store: MemoryStore, after: int = 0, kinds: Collection[ResourceKind] = ALL_KINDS
) -> AsyncIterator[ChangeSet]:
    return Watches(store).follow(Watching(after, kinds))


async def read(news: AsyncIterator[ChangeSet]) -> tuple[int, list[str]]:
    async with asyncio.timeout(5):
        change_set = await anext(news)
    return change_set.revision, [change.name for change in change_set.changes]


async def test_all_there_is_then_what_changes(store: MemoryStore) -> None:
    """The first set is the state, the next ones are changes after it."""
    await put(store, "a")
    news = follow(store)
    assert await read(news) == (101, ["models/a"])
    await put(store, "b")
    assert await read(news) == (102, ["models/b"])


async def test_resuming_tells_at_once_where_it_is(store: MemoryStore) -> None:
    """A reader that missed nothing gets an empty set, and so knows that it is up to date."""
    await put(store, "a")
    assert await read(follow(store, 101)) == (101, [])
    assert await read(follow(store, 100)) == (101, ["models/a"])


async def test_a_slow_reader_gets_the_newest_of_a_burst(store: MemoryStore) -> None:
    """Changes that came while a reader was busy arrive together, each resource once."""
    news = follow(store)
    await read(news)
    for number in range(50):
        await put(store, "a", str(number))
        await put(store, "b", str(number))
    async with asyncio.timeout(5):
        change_set = await anext(news)
    assert change_set.revision == 200
    descriptions = [getattr(change.record, "description", "") for change in change_set.changes]
    assert descriptions == ["49", "49"]


async def test_uninteresting_changes_are_silent_but_not_for_ever(store: MemoryStore) -> None:
    """A reader of endpoints hears nothing of models, only now and then how far it is, so it can resume."""
    news = follow(store, kinds={ResourceKind.ENDPOINT})
    await read(news)
    reading = asyncio.ensure_future(read(news))
    for number in range(1000):
        assert not reading.done()
        await put(store, "a", str(number))
    assert await reading == (1100, [])


async def test_revisions_that_are_gone_are_refused(store: MemoryStore) -> None:
    """Before, after, and negative ones; the error of the store passes."""
    for after in (FIRST - 1, FIRST + 1):
        with pytest.raises(OutOfRangeError):
            await read(follow(store, after))
    with pytest.raises(InvalidArgumentError):
        await read(follow(store, -1))


async def test_readers_are_counted(store: MemoryStore) -> None:
    """A reader counts from its first read until it is closed."""
    watches = Watches(store)
    news = watches.follow(Watching(0, ALL_KINDS))
    await anext(news)
    assert watches.readers == 1
    await news.aclose()  # type: ignore[attr-defined] # a generator, by its type an iterator
    assert watches.readers == 0
