"""This worker's lease at the discovery service."""

from dataclasses import dataclass

import grpc
import structlog
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from inferplane.discovery.v1 import (
    discovery_service_pb2,
    discovery_service_pb2_grpc,
    worker_pb2,
)
from inferplane.registry.v1 import placement_pb2

from services.rpc.names import WorkerName
from services.worker.domain.execution import Execution
from services.worker.domain.load_state import LoadState
from services.worker.llm.ports.engine import EngineLoad
from services.worker.ports.discovery import RegistrationError, VersionReport, WorkerReport

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same about this worker while it lives."""

    name: WorkerName
    pool: str
    zone: str
    address: str  # where Envoy reaches it
    pid: int
    release: str
    metrics_address: str
    start_ns: int  # since the epoch


class DiscoveryRegistration:
    """Registration over DiscoveryService."""

    def __init__(self, channel: grpc.aio.Channel, identity: Identity, ttl: float) -> None:
        self._stub = discovery_service_pb2_grpc.DiscoveryServiceStub(channel)
        self._identity = identity
        self._ttl = ttl

    async def renew(self, report: WorkerReport) -> None:
        """Begin or renew the lease and replace what is known. Raises RegistrationError."""
        ttl = Duration()
        ttl.FromMilliseconds(round(self._ttl * 1000))
        request = discovery_service_pb2.RegisterWorkerRequest(
            worker=worker_message(self._identity, report), ttl=ttl
        )
        try:
            await self._stub.RegisterWorker(request, timeout=self._ttl / 2)
        except grpc.aio.AioRpcError as error:
            raise RegistrationError(f"{error.code().name}: {error.details()}") from error

    async def end(self) -> None:
        """End the lease at once; not being able to is no error, it ends by itself."""
        request = discovery_service_pb2.DeregisterWorkerRequest(name=str(self._identity.name))
        try:
            await self._stub.DeregisterWorker(request, timeout=1.0)
        except grpc.aio.AioRpcError as error:
            _log.info("lease left to end by itself", error=error.details())


def worker_message(identity: Identity, report: WorkerReport) -> worker_pb2.Worker:
    """The worker as discovery hears of it."""
    start = Timestamp()
    start.FromNanoseconds(identity.start_ns)
    return worker_pb2.Worker(
        name=str(identity.name),
        pool=identity.pool,
        zone=identity.zone,
        address=identity.address,
        draining=report.draining,
        versions=[_version(v) for v in report.versions if v.state is not LoadState.GONE],
        in_flight=report.in_flight,
        pid=identity.pid,
        release=identity.release,
        metrics_address=identity.metrics_address,
        start_time=start,
    )


def _version(report: VersionReport) -> worker_pb2.WorkerVersion:
    counters = report.counters
    return worker_pb2.WorkerVersion(
        version=str(report.name),
        state=placement_pb2.LoadState.Value(f"LOAD_STATE_{report.state.name}"),
        reason=report.reason,
        counters=worker_pb2.VersionCounters(
            succeeded=counters.succeeded,
            failed=counters.failed,
            cancelled=counters.cancelled,
            rejected=counters.rejected,
            duration_us=counters.duration_us,
        ),
        execution=_execution(report.execution),
        engine=None if report.engine is None else _engine(report.engine),
    )


def _engine(load: EngineLoad) -> worker_pb2.EngineLoad:
    return worker_pb2.EngineLoad(
        waiting=load.waiting,
        running=load.running,
        blocks=load.blocks,
        used_blocks=load.used_blocks,
        cached_blocks=load.cached_blocks,
    )


def _execution(execution: Execution | None) -> placement_pb2.VersionExecution | None:
    if execution is None:
        return None
    return placement_pb2.VersionExecution(
        max_batch_size=execution.max_batch_size,
        batching_off_reason=execution.batching_off_reason,
        instances=execution.instances,
        intra_op_threads=execution.intra_op_threads,
        warnings=execution.warnings,
    )
