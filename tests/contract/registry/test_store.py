"""What every store promises: transactions, order, references, revisions, changes, waiting."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.registry.adapters.memory_store import MemoryStore
from services.registry.adapters.sql_store import SqlStore
from services.registry.domain.catalog import ALL_KINDS, Name, Query, Record, ResourceKind
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import Alias, Model, ModelVersion, VersionState
from services.registry.domain.references import check_etag
from services.registry.ports.store import Store, Transaction, View
from services.rpc.errors import AbortedError, InternalError, OutOfRangeError, UnavailableError
from services.rpc.names import ModelName
from tests.unit.registry import records
from tests.unit.registry.full_settings import FULL_SETTINGS, FULL_TUNING

FIRST = 1_000_000
Opening = Callable[..., AbstractAsyncContextManager[MemoryStore | SqlStore]]


@pytest.fixture(params=["memory", "sqlite"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    @asynccontextmanager
    async def open_store(kept: int = 10_000) -> AsyncIterator[MemoryStore | SqlStore]:
        if request.param == "memory":
            yield MemoryStore(first_revision=FIRST, kept_changes=kept)
        else:
            path = tmp_path / "registry.db"
            async with SqlStore.open(path, first_revision=FIRST, kept_changes=kept) as store:
                yield store

    return open_store


@pytest.fixture
async def store(opening: Opening) -> AsyncIterator[Store]:
    async with opening() as opened:
        yield opened


async def put(store: Store, *resources: Any) -> None:
    async def work(transaction: Transaction) -> None:
        for record in resources:
            await transaction.put(record)

    await store.write(work)


async def get_model(store: Store, name: str = "m") -> Model | None:
    return await store.read(lambda view: view.get(Model, ModelName(name)))


async def test_a_record_comes_back_as_it_was_put(store: Store) -> None:
    """All five kinds survive the way through the store with every setting, and an etag on top."""
    version = replace(records.version(), settings=FULL_SETTINGS, tuning=FULL_TUNING)
    alias = records.alias()
    kinds: list[Record] = [
        records.model(),
        version,
        alias,
        records.placement(),
        records.endpoint("e", version.name, alias.name),
    ]
    await put(store, *kinds)
    found = await store.snapshot(ALL_KINDS)
    by_name = {change.name: change.record for change in found.changes}
    for record in kinds:
        back = by_name[str(record.name)]
        assert back is not None
        assert back.etag
        assert replace(back, etag="") == record


async def test_a_failed_write_changes_nothing(store: Store) -> None:
    """A write that raises is undone as a whole, and uses no revision."""

    async def work(transaction: Transaction) -> None:
        await transaction.put(records.model())
        raise AbortedError("no")

    with pytest.raises(AbortedError):
        await store.write(work)
    assert await get_model(store) is None
    assert store.revision == FIRST


async def test_a_transaction_reads_its_own_writes(store: Store) -> None:
    """What was put or deleted before is seen inside the transaction, not outside."""

    async def work(transaction: Transaction) -> None:
        await transaction.put(records.model())
        assert await transaction.get(Model, ModelName("m")) is not None
        assert await get_model(store) is None
        await transaction.delete(ModelName("m"))
        assert await transaction.get(Model, ModelName("m")) is None

    await store.write(work)


async def test_a_read_sees_one_state(store: Store) -> None:
    """A commit in the middle of a read is not seen by it, and the write doesn't wait for the read."""

    async def work(view: View) -> list[bool]:
        before = await view.get(Model, ModelName("m"))
        await put(store, records.model())
        after = await view.get(Model, ModelName("m"))
        return [before is None, after is None]

    assert await store.read(work) == [True, True]
    assert await get_model(store) is not None


async def test_revisions_are_gapless_under_parallel_writers(store: Store) -> None:
    """Fifty writers at once get fifty successive revisions, one each."""

    async def write(number: int) -> None:
        await put(store, records.model(f"m{number}"))

    await asyncio.gather(*(write(number) for number in range(50)))
    assert store.revision == FIRST + 50
    etags = [model.etag for model in await store.read(lambda view: view.find(Model, Query()))]
    assert sorted(int(etag, 16) for etag in etags) == list(range(FIRST + 1, FIRST + 51))


async def test_one_of_parallel_writers_wins(store: Store) -> None:
    """Of writers that all start from the same etag exactly one succeeds; the others change nothing."""
    await put(store, records.model())
    start = await get_model(store)
    assert start is not None
    etag = start.etag

    async def write(number: int) -> bool:
        async def work(transaction: Transaction) -> None:
            model = await transaction.get(Model, ModelName("m"))
            assert model is not None
            check_etag(model, etag)
            await transaction.put(replace(model, description=str(number)))

        try:
            await store.write(work)
        except AbortedError:
            return False
        return True

    won = await asyncio.gather(*(write(number) for number in range(20)))
    assert sum(won) == 1
    end = await get_model(store)
    assert end is not None
    assert end.description == str(won.index(True))
    assert store.revision == FIRST + 2


async def test_read_modify_write_loses_nothing(store: Store) -> None:
    """Writers that count up one field with retries on their etag lose no count."""
    await put(store, records.model(description="0"))

    async def count_up() -> None:
        while True:
            model = await get_model(store)
            assert model is not None
            seen = model

            async def work(transaction: Transaction, seen: Model = seen) -> None:
                current = await transaction.get(Model, ModelName("m"))
                assert current is not None
                check_etag(current, seen.etag)
                await transaction.put(replace(seen, description=str(int(seen.description) + 1)))

            try:
                await store.write(work)
            except AbortedError:
                continue
            return

    await asyncio.gather(*(count_up() for _ in range(12)))
    model = await get_model(store)
    assert model is not None
    assert model.description == "12"


async def test_a_cancelled_writer_leaves_the_store_whole(store: Store) -> None:
    """A write whose caller is cancelled in the middle ends as a whole, and the store goes on."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(transaction: Transaction) -> None:
        await transaction.put(records.model())
        begun.set()
        await go_on.wait()

    writing = asyncio.create_task(store.write(work))
    await begun.wait()
    writing.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert store.revision == FIRST + 1
    assert await get_model(store) is not None
    await put(store, records.model("other"))
    assert store.revision == FIRST + 2


async def test_listings_are_in_order(store: Store) -> None:
    """Names sort as bytes, versions by age; parent, start, limit and state narrow the listing."""
    names = ["b", "a", "a-b", "a.b", "a_b", "a0"]
    await put(store, *(records.model(name) for name in names))
    await put(
        store,
        records.version("a@new", age=1),
        records.version("a@old", age=9, state=VersionState.UPLOADING),
        records.version("b@oldest", age=10),
    )
    models = await store.read(lambda view: view.find(Model, Query()))
    assert [model.name.model for model in models] == sorted(names)

    async def versions(query: Query) -> list[str]:
        found = await store.read(lambda view: view.find(ModelVersion, query))
        return [version.name.version for version in found]

    assert await versions(Query()) == ["oldest", "old", "new"]
    assert await versions(Query(parent=ModelName("a"))) == ["old", "new"]
    assert await versions(Query(limit=2)) == ["oldest", "old"]
    assert await versions(Query(state=VersionState.UPLOADING)) == ["old"]
    after = "2029-12-31T23:59:51.000000+00:00 models/a/versions/old"
    assert await versions(Query(after=after)) == ["new"]


async def test_referrers_and_blobs_follow_the_records(store: Store) -> None:
    """Who refers to a name, and which contents are in use, is right after puts, changes and deletions."""
    one, two = records.version("m@1"), records.version("m@2", files=(records.file(content=b"2"),))
    alias = records.alias("m@champion", "1")
    await put(store, records.model(), one, two, alias, records.endpoint("e", alias.name, one.name))

    async def referrers(name: object) -> list[str]:
        found = await store.read(lambda view: view.referrers(name))  # type: ignore[arg-type]
        return [str(record.name) for record in found]

    assert await referrers(one.name) == ["endpoints/e", "models/m/aliases/champion"]
    assert await referrers(alias.name) == ["endpoints/e"]
    await put(store, records.alias("m@champion", "2"), records.endpoint("e", alias.name))
    assert await referrers(one.name) == []
    assert await referrers(two.name) == ["models/m/aliases/champion"]
    used = await store.read(lambda view: view.blobs_in_use(None))
    assert used == {one.files[0].blob, two.files[0].blob}
    await store.write(lambda transaction: transaction.delete(one.name))
    among = {one.files[0].blob, two.files[0].blob}
    used = await store.read(lambda view: view.blobs_in_use(among))
    assert used == {two.files[0].blob}


@pytest.mark.parametrize("name", ["version", "alias", "model"])
async def test_what_is_referred_to_stays(store: Store, name: str) -> None:
    """The store itself refuses to break a reference, whatever the rules before it do."""
    version, alias = records.version(), records.alias()
    await put(store, records.model(), version, alias, records.endpoint("e", alias.name))
    targets: dict[str, Name] = {
        "version": version.name,
        "alias": alias.name,
        "model": ModelName("m"),
    }
    with pytest.raises(InternalError):
        await store.write(lambda transaction: transaction.delete(targets[name]))
    assert store.revision == FIRST + 1


async def test_a_reference_to_nothing_is_refused(store: Store) -> None:
    """A record can't be put before what it refers to."""
    with pytest.raises(InternalError):
        await put(store, records.version())
    assert (await store.snapshot(ALL_KINDS)).changes == []


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
    async with asyncio.timeout(5):
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
    async with asyncio.timeout(20):
        await following
    held = {change.name: change.record for change in (await store.snapshot(ALL_KINDS)).changes}
    assert mirror == held


async def test_get_is_by_kind(store: Store) -> None:
    """A name of one kind is not found as another."""
    await put(store, records.model(), records.version(), records.alias("m@1"))
    found: list[Callable[[View], Awaitable[object]]] = [
        lambda view: view.get(Alias, records.version().name),
        lambda view: view.get(Endpoint, ModelName("m")),
    ]
    for look in found:
        assert await store.read(look) is None
