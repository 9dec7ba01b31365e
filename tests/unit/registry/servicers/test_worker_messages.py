"""Workers between messages and the domain."""

from datetime import UTC, datetime

from inferplane.discovery.v1 import worker_pb2
from inferplane.registry.v1 import placement_pb2

from services.registry.domain.worker import VersionExecution
from services.registry.ports.live_workers import LiveWorker
from services.registry.servicers.placement_messages import execution_message
from services.registry.servicers.worker_messages import read_worker, worker_message


def _live(version: worker_pb2.WorkerVersion) -> LiveWorker:
    message = worker_pb2.Worker(
        name="workers/w", pool="default", address="unix:/w.sock", versions=[version]
    )
    return LiveWorker(read_worker(message), datetime.now(UTC))


def told(execution: placement_pb2.VersionExecution | None) -> VersionExecution | None:
    """What the domain has of it."""
    version = worker_pb2.WorkerVersion(
        version="models/m/versions/1", state=placement_pb2.LOAD_STATE_READY, execution=execution
    )
    return _live(version).worker.versions[0].execution


def test_how_a_version_is_run_goes_in_and_out() -> None:
    """Each field, and none where the worker says nothing."""
    given = placement_pb2.VersionExecution(
        max_batch_size=8,
        batching_off_reason="row 1",
        instances=2,
        intra_op_threads=3,
        warnings=["a", "b"],
    )
    assert execution_message(told(given)) == given
    assert told(None) is None
    assert execution_message(None) is None


def test_how_busy_an_engine_is_goes_in_and_out() -> None:
    """Each number; versions that are no language models have none."""
    version = worker_pb2.WorkerVersion(
        version="models/m/versions/1", state=placement_pb2.LOAD_STATE_READY
    )
    (told_again,) = worker_message(_live(version)).versions
    assert not told_again.HasField("engine")
    version.engine.MergeFrom(
        worker_pb2.EngineLoad(waiting=1, running=2, blocks=100, used_blocks=30, cached_blocks=40)
    )
    (told_again,) = worker_message(_live(version)).versions
    assert told_again.engine == version.engine


def test_long_texts_are_cut() -> None:
    """They are no reason to lose the lease."""
    given = placement_pb2.VersionExecution(
        batching_off_reason="x" * 10_000, warnings=["y" * 10_000] * 100
    )
    read = told(given)
    assert read is not None
    assert len(read.batching_off_reason) == 2000
    assert [len(text) for text in read.warnings] == [2000] * 16
