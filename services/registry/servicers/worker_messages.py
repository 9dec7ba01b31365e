"""Workers between messages and the domain, checked on their way in."""

from inferplane.discovery.v1 import worker_pb2
from inferplane.registry.v1 import placement_pb2

from services.registry.domain.worker import (
    EngineLoad,
    LoadState,
    VersionCounters,
    VersionExecution,
    Worker,
    WorkerVersion,
)
from services.registry.ports.live_workers import LiveWorker
from services.registry.servicers.placement_messages import LOAD_STATES, execution_message
from services.rpc import address as addresses
from services.rpc import names
from services.rpc.times import moment, timestamp
from services.rpc.violations import Violations

MAX_VERSIONS = 10_000
MAX_TEXT = 63  # characters of a zone or a release
_MOST_WARNINGS = 16  # as with reasons, the rest is cut
_LONGEST_REASON = 2000  # characters; the rest is cut, a long reason is no reason to lose the lease
_STATES_READ = {value: key for key, value in LOAD_STATES.items()}


def worker_message(live: LiveWorker) -> worker_pb2.Worker:
    """The worker as a message."""
    worker = live.worker
    return worker_pb2.Worker(
        name=str(worker.name),
        pool=worker.pool,
        zone=worker.zone,
        address=worker.address,
        draining=worker.draining,
        versions=[_version_message(version) for version in worker.versions],
        in_flight=worker.in_flight,
        pid=worker.pid,
        release=worker.release,
        metrics_address=worker.metrics_address,
        start_time=None if worker.start_time is None else timestamp(worker.start_time),
        expire_time=None if live.expire_time is None else timestamp(live.expire_time),
        untold=worker.untold,
    )


def _version_message(version: WorkerVersion) -> worker_pb2.WorkerVersion:
    return worker_pb2.WorkerVersion(
        version=str(version.version),
        state=LOAD_STATES[version.state],
        reason=version.reason,
        counters=None if version.counters is None else _counters_message(version.counters),
        execution=execution_message(version.execution),
        engine=None if version.engine is None else _engine_message(version.engine),
    )


def _counters_message(counters: VersionCounters) -> worker_pb2.VersionCounters:
    return worker_pb2.VersionCounters(
        succeeded=counters.succeeded,
        failed=counters.failed,
        cancelled=counters.cancelled,
        rejected=counters.rejected,
        duration_us=counters.duration_us,
    )


def _engine_message(load: EngineLoad) -> worker_pb2.EngineLoad:
    return worker_pb2.EngineLoad(
        waiting=load.waiting,
        running=load.running,
        blocks=load.blocks,
        used_blocks=load.used_blocks,
        cached_blocks=load.cached_blocks,
    )


def read_worker(message: worker_pb2.Worker) -> Worker:
    """The worker that a message describes; all violations at once."""
    violations = Violations()
    name = violations.take(names.parse_worker, "worker.name", message.name)
    violations.take(names.check_id, "worker.pool", message.pool)
    violations.take(_check_address, "worker.address", message.address)
    if message.metrics_address:
        violations.take(_check_address, "worker.metrics_address", message.metrics_address)
    for field, text in (("zone", message.zone), ("release", message.release)):
        violations.require(
            len(text) <= MAX_TEXT,
            f"worker.{field}",
            f"{len(text)} characters; allowed: at most {MAX_TEXT}",
        )
    versions = _read_versions(violations, message)
    violations.raise_if_any()
    assert name is not None
    return Worker(
        name=name,
        pool=message.pool,
        zone=message.zone,
        address=message.address,
        draining=message.draining,
        versions=versions,
        in_flight=message.in_flight,
        pid=message.pid,
        release=message.release,
        metrics_address=message.metrics_address,
        start_time=(
            moment("worker.start_time", message.start_time)
            if message.HasField("start_time")
            else None
        ),
        untold=message.untold[:_LONGEST_REASON],
    )


def _check_address(field: str, text: str) -> str:
    return str(addresses.parse(text, field))


def _read_versions(violations: Violations, message: worker_pb2.Worker) -> tuple[WorkerVersion, ...]:
    count = len(message.versions)
    violations.require(
        count <= MAX_VERSIONS, "worker.versions", f"{count}; allowed: at most {MAX_VERSIONS}"
    )
    read: dict[names.VersionName, WorkerVersion] = {}
    for index, given in enumerate(message.versions):
        field = f"worker.versions[{index}]"
        name = violations.take(names.parse_version, f"{field}.version", given.version)
        state = _STATES_READ.get(given.state)
        if state is None:
            allowed = ", ".join(state.value for state in LoadState)
            violations.add(f"{field}.state", f"{given.state}; allowed: {allowed}")
        if name is None or state is None:
            continue
        violations.require(
            name not in read, f"{field}.version", f"{name} is there twice; allowed: once"
        )
        read[name] = _worker_version(name, state, given)
    return tuple(read.values())


def _worker_version(
    name: names.VersionName, state: LoadState, given: worker_pb2.WorkerVersion
) -> WorkerVersion:
    return WorkerVersion(
        version=name,
        state=state,
        reason=given.reason[:_LONGEST_REASON],
        counters=_read_counters(given.counters) if given.HasField("counters") else None,
        execution=_read_execution(given.execution) if given.HasField("execution") else None,
        engine=_read_engine(given.engine) if given.HasField("engine") else None,
    )


def _read_counters(given: worker_pb2.VersionCounters) -> VersionCounters:
    return VersionCounters(
        succeeded=given.succeeded,
        failed=given.failed,
        cancelled=given.cancelled,
        rejected=given.rejected,
        duration_us=given.duration_us,
    )


def _read_engine(given: worker_pb2.EngineLoad) -> EngineLoad:
    return EngineLoad(
        waiting=given.waiting,
        running=given.running,
        blocks=given.blocks,
        used_blocks=given.used_blocks,
        cached_blocks=given.cached_blocks,
    )


def _read_execution(given: placement_pb2.VersionExecution) -> VersionExecution:
    return VersionExecution(
        max_batch_size=given.max_batch_size,
        batching_off_reason=given.batching_off_reason[:_LONGEST_REASON],
        instances=given.instances,
        intra_op_threads=given.intra_op_threads,
        warnings=tuple(text[:_LONGEST_REASON] for text in given.warnings[:_MOST_WARNINGS]),
    )
