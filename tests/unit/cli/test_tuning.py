"""Tuning against a small mesh: what it asks for, what it waits for, what it shows."""

import pytest
from inferplane.registry.v1 import model_pb2, placement_pb2

from services.cli.adapters.edge import connect
from services.cli.adapters.tuning import Tuned, tune
from services.rpc.errors import DeadlineExceededError, FailedPreconditionError, UnavailableError
from services.rpc.names import VersionName
from tests.unit.cli.small_mesh import HeardReport, Store, serving

V1 = VersionName("m", "1")
FOUND = model_pb2.VersionTuning(
    intra_op_threads=1,
    instances=2,
    max_batch_size=64,
    rows_per_second=3000,
    baseline_rows_per_second=1000,
    machine_cpus=2,
)
NOTHING_YET = model_pb2.VersionTuning()


def store() -> Store:
    """A version that is READY on one worker, which runs it by one instance."""
    made = Store()
    made.versions[str(V1)] = model_pb2.ModelVersion(
        name=str(V1), state=model_pb2.VERSION_STATE_READY
    )
    placed = placement_pb2.Placement(name="pools/default/placements/m@1", version=str(V1))
    worker = placed.status.workers.add(worker="workers/w", state=placement_pb2.LOAD_STATE_READY)
    worker.execution.MergeFrom(
        placement_pb2.VersionExecution(intra_op_threads=2, instances=1, max_batch_size=32)
    )
    made.statuses.append(placed)
    return made


async def tuned(there: Store, report: HeardReport, seconds: float = 20) -> Tuned:
    async with serving(there) as address, connect(address) as edge:
        return await tune(edge, V1, seconds, report)


async def test_it_waits_until_somebody_has_measured() -> None:
    """The version is asked to be measured; where it is told; the result stands beside how it was run."""
    there, report = store(), HeardReport()
    there.statuses[0].status.workers[0].execution.warnings.append("batches were not compared")
    there.measured = [NOTHING_YET, FOUND]
    done = await tuned(there, report)
    assert done.version.tuning == FOUND
    assert done.before is not None
    assert done.before.row("before") == ["before", "2", "1", "32", "", ""]
    assert done.after.row("after") == ["after", "1", "2", "64", "3000", "3.0"]
    assert report.said == [
        "measuring m@1 on 1 workers; it is served meanwhile",
        "m@1 on w: ready",
        "m@1 on w: batches were not compared",
    ]
    assert done.as_json()["before"]["rows_per_second"] is None
    assert done.as_json()["after"]["ratio"] == 3.0


async def test_what_was_measured_before_is_shown() -> None:
    """A tuning that is there is forgotten first, and is what the new one is compared with."""
    there = store()
    there.versions[str(V1)].tuning.MergeFrom(FOUND)
    better = model_pb2.VersionTuning()
    better.MergeFrom(FOUND)
    better.rows_per_second = 4000
    there.measured = [NOTHING_YET, better]
    there.versions[str(V1)].settings.instances = 1
    report = HeardReport()
    done = await tuned(there, report)
    assert "instances: the version's settings come before what is measured" in report.said
    assert done.before is not None
    assert (done.before.ratio, done.after.ratio) == (3.0, 4.0)


async def test_nobody_measures() -> None:
    """After the time it is told where the workers were, and that it stays asked for."""
    there = store()
    with pytest.raises(DeadlineExceededError, match=r"within 0.1 s \(w ready\); it stays asked"):
        await tuned(there, HeardReport(), 0.1)
    assert there.versions[str(V1)].measuring_wanted


async def test_nobody_could_measure() -> None:
    """A version that is placed nowhere, or where no worker lives, is refused before anything is changed."""
    there = store()
    del there.statuses[0].status.workers[:]
    with pytest.raises(UnavailableError, match="no worker of the pools that have m@1 is live"):
        await tuned(there, HeardReport())
    there.statuses.clear()
    with pytest.raises(FailedPreconditionError, match="m@1 is placed on no pool"):
        await tuned(there, HeardReport())
    assert not there.versions[str(V1)].measuring_wanted


async def test_nobody_can_load_it() -> None:
    """A version that fails on every worker is not waited for, also while they try again; one worker is enough."""
    there = store()
    (worker,) = there.statuses[0].status.workers
    worker.state, worker.reason = placement_pb2.LOAD_STATE_FAILED, "no such operator"
    with pytest.raises(FailedPreconditionError, match=r"m@1 can't be loaded, .*: no such operator"):
        await tuned(there, HeardReport())
    worker.state, worker.reason = placement_pb2.LOAD_STATE_LOADING, "last attempt: too large"
    with pytest.raises(FailedPreconditionError, match="no worker measures it: too large"):
        await tuned(there, HeardReport())
    assert not there.versions[str(V1)].measuring_wanted
    ready = there.statuses[0].status.workers.add(worker="workers/v")
    ready.state = placement_pb2.LOAD_STATE_READY
    there.measured = [FOUND]
    assert (await tuned(there, HeardReport())).version.tuning == FOUND
