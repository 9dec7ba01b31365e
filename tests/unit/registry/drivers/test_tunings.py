"""Keeping what was measured with a version, on the store in memory."""

from dataclasses import replace

import pytest

from services.registry.adapters.memory_store import MemoryStore
from services.registry.domain.catalog import ALL_KINDS
from services.registry.domain.model import ModelVersion, VersionState
from services.registry.domain.tuning import VersionTuning
from services.registry.drivers.tunings import TuningOrder, Tunings
from services.registry.ports.store import Transaction
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from services.rpc.names import VersionName
from tests.unit.registry import records
from tests.unit.registry.full_settings import FULL_TUNING

V1 = VersionName("m", "1")
OTHER = replace(FULL_TUNING, instances=1)


async def store_with(version: ModelVersion) -> MemoryStore:
    store = MemoryStore(first_revision=1)

    async def work(transaction: Transaction) -> None:
        await transaction.put(records.model())
        await transaction.put(version)

    await store.write(work)
    return store


async def test_a_tuning_is_kept_and_told() -> None:
    """It comes with the version from then on, under a new etag, and who watches hears of it."""
    store = await store_with(records.version())
    revision = store.revision
    kept = await Tunings(store).set(V1, TuningOrder(tuning=FULL_TUNING))
    assert kept.tuning == FULL_TUNING
    news = await store.changes(revision, ALL_KINDS)
    assert [change.record for change in news.changes] == [kept]
    assert kept.etag not in {"", records.version().etag}


async def test_the_first_of_several_measurements_decides() -> None:
    """Who asks for it only where nothing is set learns what was, and changes nothing; others replace it."""
    store = await store_with(records.version())
    tunings = Tunings(store)
    first = await tunings.set(V1, TuningOrder(tuning=FULL_TUNING, only_if_unset=True))
    revision = store.revision
    second = await tunings.set(V1, TuningOrder(tuning=OTHER, only_if_unset=True))
    assert second == first
    assert store.revision == revision
    assert (await tunings.set(V1, TuningOrder(tuning=OTHER))).tuning == OTHER


async def test_forgetting_asks_for_measuring_until_it_is_done() -> None:
    """A request to measure takes the tuning away, stays with the version, and ends with the next tuning."""
    store = await store_with(replace(records.version(), tuning=FULL_TUNING))
    tunings = Tunings(store)
    wanted = await tunings.set(V1, TuningOrder(tuning=None, measure=True))
    assert (wanted.tuning, wanted.measuring_wanted) == (None, True)
    revision = store.revision
    assert await tunings.set(V1, TuningOrder(tuning=None, measure=True)) == wanted
    assert store.revision == revision
    done = await tunings.set(V1, TuningOrder(tuning=OTHER, only_if_unset=True))
    assert (done.tuning, done.measuring_wanted) == (OTHER, False)
    plain = await tunings.set(V1, TuningOrder(tuning=None))
    assert (plain.tuning, plain.measuring_wanted) == (None, False)


async def test_what_can_not_have_a_tuning() -> None:
    """A version that isn't there or isn't READY has none; measuring and setting at once is refused."""
    store = await store_with(records.version(state=VersionState.UPLOADING))
    tunings = Tunings(store)
    with pytest.raises(FailedPreconditionError, match="allowed: a READY version"):
        await tunings.set(V1, TuningOrder(tuning=FULL_TUNING))
    with pytest.raises(NotFoundError, match="models/m/versions/2 does not exist"):
        await tunings.set(VersionName("m", "2"), TuningOrder(tuning=None))
    with pytest.raises(InvalidArgumentError, match="measure: is set together with tuning"):
        await tunings.set(V1, TuningOrder(tuning=FULL_TUNING, measure=True))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (replace(FULL_TUNING, intra_op_threads=0), "intra_op_threads"),
        (replace(FULL_TUNING, instances=257), "instances"),
        (replace(FULL_TUNING, max_batch_size=0), "max_batch_size"),
        (replace(FULL_TUNING, machine_cpus=0), "machine_cpus"),
        (replace(FULL_TUNING, rows_per_second=0.0), "rows_per_second"),
        (replace(FULL_TUNING, baseline_rows_per_second=float("inf")), "baseline_rows_per_second"),
    ],
)
async def test_a_tuning_that_no_worker_can_run_by(wrong: VersionTuning, field: str) -> None:
    """Numbers out of range are named."""
    store = await store_with(records.version())
    with pytest.raises(InvalidArgumentError) as refused:
        await Tunings(store).set(V1, TuningOrder(tuning=wrong))
    assert [violation.field for violation in refused.value.violations] == [f"tuning.{field}"]
