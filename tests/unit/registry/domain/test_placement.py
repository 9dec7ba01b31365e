"""What placements say about live workers."""

from dataclasses import replace

from services.registry.domain.placement import placement_status
from services.registry.domain.worker import LoadState, VersionExecution
from tests.unit.registry.records import placement, worker


def test_status_is_what_the_pools_workers_report() -> None:
    """PENDING where a worker says nothing, its own words where it does; other pools don't count."""
    failed = worker("w2", states={"m@1": LoadState.FAILED, "m@2": LoadState.READY})
    (first, *rest) = failed.versions
    failed = replace(failed, versions=(replace(first, reason="no memory"), *rest))
    live = [
        worker("w3", states={"m@1": LoadState.READY}),
        failed,
        worker("w1"),
        worker("x", "other", {"m@1": LoadState.READY}),
    ]
    status = placement_status(placement().name, live)
    assert [(s.worker.worker, s.state, s.reason) for s in status.workers] == [
        ("w1", LoadState.PENDING, ""),
        ("w2", LoadState.FAILED, "no memory"),
        ("w3", LoadState.READY, ""),
    ]
    assert status.ready_workers == 1


def test_no_worker_is_no_status() -> None:
    """An empty pool has nobody to report."""
    assert placement_status(placement().name, []).workers == ()


def test_how_a_worker_runs_it_is_told() -> None:
    """Batch size and the like come from the worker that has it loaded."""
    execution = VersionExecution(max_batch_size=8, batching_off_reason="", warnings=("odd",))
    ready = worker("w1", states={"m@1": LoadState.READY})
    ready = replace(ready, versions=(replace(ready.versions[0], execution=execution),))
    status = placement_status(placement().name, [ready, worker("w2")])
    assert [s.execution for s in status.workers] == [execution, None]


def test_why_a_worker_says_nothing() -> None:
    """A worker that can't tell discovery of all its versions says so where one is missing."""
    full = replace(worker("w1"), untold="9 of 99 versions")
    (status,) = placement_status(placement().name, [full]).workers
    assert (status.state, status.reason) == (LoadState.PENDING, "9 of 99 versions")
