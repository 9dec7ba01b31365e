"""Tuning a version: what was measured is forgotten, and a worker that has the version measures again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import tenacity
from inferplane.registry.v1 import model_pb2, model_service_pb2, placement_pb2

from services.cli.adapters.deployment import LoadingState, list_placements
from services.cli.adapters.edge import CALL_SECONDS, Edge
from services.cli.adapters.push import get_version
from services.cli.adapters.terminal import as_dict
from services.cli.ports.report import Report
from services.rpc.errors import DeadlineExceededError, FailedPreconditionError, UnavailableError
from services.rpc.names import VersionName

_LOOK_EVERY = 0.2  # seconds; measuring takes many
_MEASURED = ("intra_op_threads", "instances", "max_batch_size")
_READY = placement_pb2.LOAD_STATE_READY
HEADERS = ("", "threads", "instances", "max batch", "rows/s", "x baseline")


@dataclass(frozen=True, slots=True)
class Run:
    """How a version is run, and what measuring says about that."""

    intra_op_threads: int
    instances: int
    max_batch_size: int
    rows_per_second: float = 0.0  # 0: not measured
    baseline_rows_per_second: float = 0.0

    @property
    def ratio(self) -> float:
        """Rows a second as a multiple of one thread's without batches; 0: not measured."""
        if not self.baseline_rows_per_second:
            return 0.0
        return self.rows_per_second / self.baseline_rows_per_second

    def row(self, label: str) -> list[str]:
        """A line of the table with `HEADERS`."""
        run = (self.intra_op_threads, self.instances, self.max_batch_size)
        measured = [f"{self.rows_per_second:.0f}", f"{self.ratio:.1f}"]
        return [label, *map(str, run), *(measured if self.ratio else ["", ""])]

    def as_json(self) -> dict[str, Any]:
        """For programs; what was not measured is null."""
        return {
            "intra_op_threads": self.intra_op_threads,
            "instances": self.instances,
            "max_batch_size": self.max_batch_size,
            "rows_per_second": self.rows_per_second or None,
            "ratio": round(self.ratio, 3) or None,
        }


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of it."""

    before: Run | None  # None: nobody said how it was run
    after: Run
    version: model_pb2.ModelVersion

    def as_json(self) -> dict[str, Any]:
        """Both, and the version."""
        return {
            "before": None if self.before is None else self.before.as_json(),
            "after": self.after.as_json(),
            "model_version": as_dict(self.version),
        }


async def tune(edge: Edge, name: VersionName, seconds: float, report: Report) -> Tuned:
    """Have a version measured and wait for what is found; it is served meanwhile."""
    version = await get_version(edge, name)
    workers = await _workers(edge, name)
    _refuse_unless_loadable(name, workers)
    before = _measured(version) or _run_by(workers)
    request = model_service_pb2.SetModelVersionTuningRequest(name=str(name), measure=True)
    await edge.models.SetModelVersionTuning(request, timeout=CALL_SECONDS)
    report.say(f"measuring {name.short} on {len(workers)} workers; it is served meanwhile")
    fixed = [field for field in _MEASURED if getattr(version.settings, field)]
    if fixed:
        report.say(f"{', '.join(fixed)}: the version's settings come before what is measured")
    progress = _Progress(name, report)
    progress.see(workers)
    try:
        async with asyncio.timeout(seconds):
            found = await _wait(edge, name, progress)
    except TimeoutError as error:
        raise DeadlineExceededError(
            f"{name.short} was not measured within {seconds:g} s ({progress.told}); it stays asked for,"
            f" and inferplane models get {name.short} shows what is found"
        ) from error
    after = _measured(found)
    assert after is not None
    return Tuned(before, after, found)


async def _workers(
    edge: Edge, name: VersionName
) -> list[placement_pb2.PlacementStatus.WorkerStatus]:
    """The live workers of every pool that has the version, which must be some."""
    placed = [p for p in await list_placements(edge) if p.version == str(name)]
    if not placed:
        raise FailedPreconditionError(
            f"{name.short} is placed on no pool, so no worker measures it;"
            f" to place it: inferplane deploy {name.short}",
            reason="NOT_PLACED",
            metadata={"version": str(name)},
        )
    workers = [worker for placement in placed for worker in placement.status.workers]
    if not workers:
        raise UnavailableError(
            f"no worker of the pools that have {name.short} is live, so nobody measures it",
            reason="NO_WORKER",
            metadata={"version": str(name)},
        )
    return workers


def _refuse_unless_loadable(
    name: VersionName, workers: Sequence[placement_pb2.PlacementStatus.WorkerStatus]
) -> None:
    """FailedPreconditionError if every worker has failed; they may be at it again, with the reason still there."""
    failures = [worker.reason for worker in workers if worker.state != _READY and worker.reason]
    if not workers or len(failures) < len(workers):
        return
    reason = failures[0].removeprefix("last attempt: ")
    raise FailedPreconditionError(
        f"{name.short} can't be loaded, so no worker measures it: {reason}",
        reason="LOAD_FAILED",
        metadata={"version": str(name), "load_error": reason},
    )


class _NotYetError(Exception):
    """Not measured yet."""


async def _wait(edge: Edge, name: VersionName, progress: "_Progress") -> model_pb2.ModelVersion:
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_passes), wait=tenacity.wait_fixed(_LOOK_EVERY)
    ):
        with attempt:
            version = await get_version(edge, name)
            if version.HasField("tuning"):
                return version
            workers = await _workers(edge, name)
            progress.see(workers)
            _refuse_unless_loadable(name, workers)
            raise _NotYetError
    raise AssertionError("it is tried until it returns")


def _passes(error: BaseException) -> bool:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() is grpc.StatusCode.UNAVAILABLE
    return isinstance(error, _NotYetError | UnavailableError)


class _Progress:
    """Says each change of a worker's state, and each of its warnings, once."""

    def __init__(self, name: VersionName, report: Report) -> None:
        self._name = name
        self._report = report
        self._seen: dict[str, str] = {}
        self._warnings: set[str] = set()

    @property
    def told(self) -> str:
        """Where the workers are, in a line."""
        return ", ".join(f"{worker} {state}" for worker, state in self._seen.items())

    def see(self, workers: Sequence[placement_pb2.PlacementStatus.WorkerStatus]) -> None:
        for status in workers:
            worker = status.worker.removeprefix("workers/")
            state = str(LoadingState(status.state, status.reason))
            if self._seen.get(worker) != state:
                self._report.say(f"{self._name.short} on {worker}: {state}")
            self._seen[worker] = state
            for warning in set(status.execution.warnings) - self._warnings:
                self._warnings.add(warning)
                self._report.say(f"{self._name.short} on {worker}: {warning}")


def _measured(version: model_pb2.ModelVersion) -> Run | None:
    if not version.HasField("tuning"):
        return None
    found = version.tuning
    return Run(
        found.intra_op_threads,
        found.instances,
        found.max_batch_size,
        found.rows_per_second,
        found.baseline_rows_per_second,
    )


def _run_by(workers: Sequence[placement_pb2.PlacementStatus.WorkerStatus]) -> Run | None:
    """How the first worker that says so runs it, measured by nobody."""
    for worker in workers:
        if worker.HasField("execution"):
            said = worker.execution
            return Run(said.intra_op_threads, said.instances, said.max_batch_size)
    return None
