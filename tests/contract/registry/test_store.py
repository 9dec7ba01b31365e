"""What every store promises: transactions, order, references, revisions."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from services.registry.domain.catalog import ALL_KINDS, Name, Query, Record
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import Alias, Model, ModelVersion, VersionState
from services.registry.domain.references import check_etag
from services.registry.ports.store import Store, Transaction, View
from services.rpc.errors import AbortedError, InternalError
from services.rpc.names import ModelName
from tests.contract.registry.opened_store import FIRST, get_model, put
from tests.unit.registry import records
from tests.unit.registry.full_settings import FULL_SETTINGS, FULL_TUNING


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
        found = await store.read(lambda view: view.referrers(name))  # type: ignore[arg-type] # any name
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


async def test_get_is_by_kind(store: Store) -> None:
    """A name of one kind is not found as another."""
    await put(store, records.model(), records.version(), records.alias("m@1"))
    found: list[Callable[[View], Awaitable[object]]] = [
        lambda view: view.get(Alias, records.version().name),
        lambda view: view.get(Endpoint, ModelName("m")),
    ]
    for look in found:
        assert await store.read(look) is None
