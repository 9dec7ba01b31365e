"""Placements and load states between messages and the domain."""

from collections.abc import Mapping

from inferplane.registry.v1 import placement_pb2

from services.registry.domain.placement import Placement, PlacementStatus
from services.registry.domain.worker import LoadState, VersionExecution
from services.rpc.times import timestamp

LOAD_STATES: Mapping[LoadState, placement_pb2.LoadState.ValueType] = {
    LoadState.PENDING: placement_pb2.LOAD_STATE_PENDING,
    LoadState.PULLING: placement_pb2.LOAD_STATE_PULLING,
    LoadState.LOADING: placement_pb2.LOAD_STATE_LOADING,
    LoadState.WARMING: placement_pb2.LOAD_STATE_WARMING,
    LoadState.READY: placement_pb2.LOAD_STATE_READY,
    LoadState.DRAINING: placement_pb2.LOAD_STATE_DRAINING,
    LoadState.FAILED: placement_pb2.LOAD_STATE_FAILED,
}


def placement_message(
    placement: Placement, status: PlacementStatus | None = None
) -> placement_pb2.Placement:
    """The placement as a message."""
    message = placement_pb2.Placement(
        name=str(placement.name),
        version=str(placement.version),
        create_time=timestamp(placement.create_time),
        etag=placement.etag,
    )
    if status is not None:
        message.status.CopyFrom(_status_message(status))
    return message


def _status_message(status: PlacementStatus) -> placement_pb2.PlacementStatus:
    return placement_pb2.PlacementStatus(
        ready_workers=status.ready_workers,
        live_workers=len(status.workers),
        workers=[
            placement_pb2.PlacementStatus.WorkerStatus(
                worker=str(worker.worker),
                state=LOAD_STATES[worker.state],
                reason=worker.reason,
                execution=execution_message(worker.execution),
            )
            for worker in status.workers
        ],
    )


def execution_message(
    execution: VersionExecution | None,
) -> placement_pb2.VersionExecution | None:
    """How a version is run as a message; None: it is not loaded."""
    if execution is None:
        return None
    return placement_pb2.VersionExecution(
        max_batch_size=execution.max_batch_size,
        batching_off_reason=execution.batching_off_reason,
        instances=execution.instances,
        intra_op_threads=execution.intra_op_threads,
        warnings=execution.warnings,
    )
