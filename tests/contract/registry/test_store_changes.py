"""What every store promises to those who follow it: changes, snapshots, compaction, waiting."""

import asyncio

import pytest

from services.registry.domain.catalog import ALL_KINDS, Record, ResourceKind
from services.registry.domain.model import Model
from services.registry.ports.store import Store, Transaction
from services.rpc.errors import OutOfRangeError, UnavailableError
from services.rpc.names import ModelName
from tests.contract.registry.opened_store import FIRST, Opening, get_model, put
from tests.unit.registry import records


async def test_changes_come_in_order_and_once(store: Store) -> None:
    """A resource that changed twice comes once, at its last place, as it is now; a deleted one comes bare."""
    await put(store, records.model("a"))
    await put(store, records.model("b"))
    await put(store, records.model("a", "again"))
    await put(store, records.model("gone"))
    await store.write(lambda transaction: transaction.delete(ModelName("gone")))
    news = await store.changes(FIRST, ALL_KINDS)
    assert news.revision == FIRST + 5
    seen = [(change.name, change.record is None) for change in news.changes]
    assert seen == [("models/b", False), ("models/a", False), ("models/gone", True)]
    record = news.changes[1].record
    assert isinstance(record, Model)
    assert record.description == "again"
    later = await store.changes(FIRST + 3, ALL_KINDS)
    assert [change.name for change in later.changes] == ["models/gone"]
    assert (await store.changes(FIRST + 5, ALL_KINDS)).changes == []


async def test_kinds_narrow_snapshot_and_changes(store: Store) -> None:
    """Only wanted kinds come, yet the revision is that of the whole store."""
    await put(store, records.model(), records.version(), records.alias())
    wanted = {ResourceKind.ALIAS}
    for news in (await store.snapshot(wanted), await store.changes(FIRST, wanted)):
        assert [change.name for change in news.changes] == ["models/m/aliases/champion"]
        assert news.revision == FIRST + 1


async def test_a_snapshot_comes_in_the_order_of_references(store: Store) -> None:
    """Applied one by one, no record of a snapshot refers to one that has not come yet."""
    version, alias = records.version(), records.alias("m@a")
    await put(
        store,
        records.model(),
        version,
        alias,
        records.placement(),
        records.endpoint("e", alias.name),
    )
    kinds = [change.kind for change in (await store.snapshot(ALL_KINDS)).changes]
    assert kinds == list(ResourceKind)


async def test_old_changes_are_compacted(opening: Opening) -> None:
    """At least the promised number of changes stays; resuming before that is refused, after it works."""
    kept = 10
    async with opening(kept) as store:
        for number in range(35):
            await put(store, records.model("m", str(number)))
        with pytest.raises(OutOfRangeError) as refused:
            await store.changes(FIRST, ALL_KINDS)
        assert refused.value.reason == "REVISION_UNAVAILABLE"
        oldest = int(refused.value.metadata["oldest"])
        assert FIRST < oldest <= store.revision - kept
        assert len((await store.changes(oldest, ALL_KINDS)).changes) == 1
        with pytest.raises(OutOfRangeError):
            await store.changes(oldest - 1, ALL_KINDS)


@pytest.mark.parametrize("after", [FIRST - 1, FIRST + 1, 1, 2**63 - 1])
async def test_foreign_revisions_are_refused(store: Store, after: int) -> None:
    """A revision of another store, older or newer, can't be resumed after."""
    with pytest.raises(OutOfRangeError) as refused:
        await store.changes(after, ALL_KINDS)
    assert refused.value.reason == "REVISION_UNAVAILABLE"
    assert refused.value.metadata["after_revision"] == str(after)


async def test_waiting_ends_with_the_next_commit(store: Store) -> None:
    """All who wait hear of a commit; a write that changed nothing wakes nobody."""
    waiters = [asyncio.create_task(store.wait_beyond(FIRST)) for _ in range(3)]

    async def nothing(transaction: Transaction) -> None:
        await transaction.get(Model, ModelName("m"))

    await store.write(nothing)
    assert store.revision == FIRST
    await put(store, records.model())
    async with asyncio.timeout(100):
        assert await asyncio.gather(*waiters) == [FIRST + 1] * 3
        assert await store.wait_beyond(FIRST) == FIRST + 1


async def test_waiting_ends_when_the_store_closes(opening: Opening) -> None:
    """Who waits while the store closes is told to connect again."""
    async with opening() as store:
        waiter = asyncio.create_task(store.wait_beyond(FIRST))
        await put(store, records.model())
        assert await waiter == FIRST + 1
        waiter = asyncio.create_task(store.wait_beyond(FIRST + 1))
        await asyncio.wait([asyncio.create_task(get_model(store))])
        store.close()
        with pytest.raises(UnavailableError):
            await waiter


async def test_followers_see_every_commit_in_order(store: Store) -> None:
    """A follower that resumes from revision to revision ends with exactly what the store holds."""
    mirror: dict[str, Record] = {}
    done = FIRST + 61

    async def follow() -> None:
        seen = FIRST
        while seen < done:
            await store.wait_beyond(seen)
            news = await store.changes(seen, ALL_KINDS)
            assert news.revision > seen
            for change in news.changes:
                if change.record is None:
                    mirror.pop(change.name, None)
                else:
                    mirror[change.name] = change.record
            seen = news.revision

    async def write(number: int) -> None:
        await put(store, records.model(f"m{number % 7}", str(number)))

    following = asyncio.create_task(follow())
    await asyncio.gather(*(write(number) for number in range(60)))
    await store.write(lambda transaction: transaction.delete(ModelName("m3")))
    async with asyncio.timeout(100):
        await following
    held = {change.name: change.record for change in (await store.snapshot(ALL_KINDS)).changes}
    assert mirror == held
