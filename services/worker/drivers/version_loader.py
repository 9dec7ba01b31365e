"""Makes a version that answers from its files: pulled, tried in a child, loaded here, warm."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from services.worker.domain import example, instance_plan
from services.worker.domain.assignment import RunSettings, VersionSpec
from services.worker.domain.batch import BatchLimits, BatchQueue
from services.worker.domain.execution import (
    Execution,
    ExecutionDefaults,
    Findings,
    execution_of,
    max_rows_of,
)
from services.worker.domain.instance_plan import Instance
from services.worker.domain.load_state import LoadError, LoadState
from services.worker.domain.queue_rules import QueueRules
from services.worker.domain.ragged import Padding
from services.worker.domain.response_cache import ResponseCache
from services.worker.domain.sequence_state import StatePlan
from services.worker.domain.sequences import LineLimits
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.batcher import Batcher, Model
from services.worker.drivers.cache_gate import CacheGate
from services.worker.drivers.loaded import Loaded
from services.worker.drivers.runner_parts import RunnerParts
from services.worker.drivers.sequence_gate import SequenceGate
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.suspects import Suspects
from services.worker.drivers.traffic import Traffic
from services.worker.drivers.version_meter import VersionMeter
from services.worker.ports.gate import Gate
from services.worker.ports.session import ProbeReport, Session

_log = structlog.get_logger(__name__)

_BATCHES_QUEUED = 4  # fit in any queue, however large a version's batches are
_REQUESTS_QUEUED = 32  # may wait however long they take


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a version will compute."""

    execution: Execution
    plan: Sequence[Instance]
    padding: Padding | None
    batched: bool
    steady: bool


class VersionLoader:
    """Loads one version, more than once if need be."""

    def __init__(
        self,
        parts: RunnerParts,
        statistics: VersionStatistics,
        progressed: Callable[[LoadState], None],
    ) -> None:
        """Assign only.

        Args:
            parts: of the worker.
            statistics: of the version; those of what was loaded before go on.
            progressed: is told how far it has come.
        """
        self._parts = parts
        self._statistics = statistics
        self._progressed = progressed
        # Outlives what was loaded, and so do its states.
        self._sequences: SequenceGate | None = None

    async def load(self, spec: VersionSpec) -> Loaded:
        """Raises LoadError."""
        if spec.unsupported:
            raise LoadError(spec.unsupported)
        padding = Padding.of(spec.signature, spec.settings)
        states = _states_of(spec)
        async with self._parts.loads:
            self._progressed(LoadState.PULLING)
            async with AsyncExitStack() as stack:
                folder = await stack.enter_async_context(self._parts.cache.hold(spec))
                self._progressed(LoadState.LOADING)
                report = await self._parts.probe.examine(spec, folder)
                way = self._way(spec, report, padding)
                sessions = await asyncio.to_thread(self._sessions, spec, folder, way.plan)
                self._progressed(LoadState.WARMING)
                for session in dict.fromkeys(sessions):
                    await asyncio.to_thread(_warm, spec, session)
                kept = stack.pop_all()
        _tell(spec, way.execution, report)
        flights, reruns = self._parts.flights, self._parts.reruns
        recorded = {session: flights.recorded(session) for session in sessions}
        model = _model(spec, way, [recorded[session] for session in sessions])
        served = self._served(spec, model, states)
        if states is None:  # what depends on state can't be computed elsewhere
            served = replace(served, suspects=Suspects(spec, folder, flights, reruns))
        return Loaded(served, served.batcher, way.execution, report.tuning, kept)

    def _way(self, spec: VersionSpec, report: ProbeReport, padding: Padding | None) -> _Way:
        defaults = self._parts.defaults
        findings = Findings(
            batching_off_reason="" if report.batchable else report.batching_reason,
            warnings=_warnings(report),
            tuning=report.tuning,
        )
        fallback = ExecutionDefaults(
            max_batch_size=defaults.max_batch_size,
            instances=defaults.concurrent_runs,
            intra_op_threads=defaults.intra_op_threads,
        )
        execution = execution_of(spec, findings, fallback)
        batched = not execution.batching_off_reason
        return _Way(
            execution=execution,
            plan=plan(spec.settings, execution),
            padding=padding if batched and not report.padding_reason else None,
            batched=batched,
            # Without batching the rows of a request are not counted.
            steady=report.steady and (batched or spec.signature.has_fixed_inputs),
        )

    def _sessions(
        self, spec: VersionSpec, folder: Path, plan: Sequence[Instance]
    ) -> tuple[Session, ...]:
        """One for each instance; the same one if it has no threads of its own."""
        load = self._parts.loader.load
        if instance_plan.can_share_session(plan):
            return (load(spec, folder, plan[0]),) * len(plan)
        return tuple(load(spec, folder, instance) for instance in plan)

    def _served(self, spec: VersionSpec, model: Model, states: StatePlan | None) -> ServedVersion:
        rules = QueueRules.of(spec.settings, model.max_rows)
        limits = self._limits(spec, model, rules)
        queue = BatchQueue(limits, model.padding)
        meter = VersionMeter(self._statistics)
        meter.watch_queue(lambda: queue.rows, lambda: len(queue))
        self._parts.meter.show(spec.name, self._statistics)
        batcher = Batcher(queue, model, meter, self._parts.delivered, rules)
        traffic = Traffic(self._parts.traffic)
        gate = self._gate(spec, batcher)
        if states is not None:
            gate = self._sequence_gate(spec.settings, states, batcher, limits)
            spec = replace(spec, signature=states.seen)  # callers neither give nor get state
        usage = self._parts.usage(spec)
        return ServedVersion(spec, batcher, gate, self._statistics, traffic, usage=usage)

    def _limits(self, spec: VersionSpec, model: Model, rules: QueueRules) -> BatchLimits:
        settings, defaults = spec.settings, self._parts.defaults
        max_rows = max_rows_of(spec, spec.tuning, defaults.max_batch_size)
        least = _BATCHES_QUEUED * max_rows
        return BatchLimits(
            max_rows=model.max_rows,
            max_delay=settings.max_queue_delay if model.batched else 0.0,
            preferred=settings.preferred_batch_sizes,
            max_queued_rows=settings.max_queue_rows or max(defaults.max_queued_rows, least),
            max_queued_bytes=settings.max_queue_bytes or defaults.max_queued_bytes,
            max_wait=defaults.max_queue_seconds,
            least_rows=max(least, _REQUESTS_QUEUED),
            levels=rules.levels,
            instances=len(model.sessions),
        )

    def _gate(self, spec: VersionSpec, batcher: Batcher) -> Gate:
        """What stands before the batcher; nothing unless the version's settings say so."""
        limits = spec.settings.response_cache
        if limits is None:
            return batcher
        cache = ResponseCache(limits)
        return CacheGate(batcher, cache, spec.digest, self._statistics, self._parts.delivered)

    def _sequence_gate(
        self, settings: RunSettings, states: StatePlan, batcher: Batcher, limits: BatchLimits
    ) -> Gate:
        assert settings.sequence is not None
        if self._sequences is None:
            line = LineLimits(limits.max_queued_rows, limits.max_queued_bytes)
            gate = SequenceGate(batcher, states, settings.sequence, line)
            self._sequences = gate
            self._statistics.sequences = lambda: len(gate.sequences)
            self._statistics.sequence_bytes = lambda: gate.sequences.size
        else:
            self._sequences.move_to(batcher)
        return self._sequences


def _states_of(spec: VersionSpec) -> StatePlan | None:
    """Which tensors are state; None: requests stand by themselves. Raises LoadError."""
    sequence = spec.settings.sequence
    return None if sequence is None else StatePlan.of(spec.signature, sequence.states)


def _warnings(report: ProbeReport) -> tuple[str, ...]:
    if not report.batchable or not report.padding_reason:
        return report.warnings
    why = f"requests of unlike lengths don't share runs: {report.padding_reason}"
    return (*report.warnings, why)


def plan(settings: RunSettings, execution: Execution) -> tuple[Instance, ...]:
    """Threads and CPUs of each instance. Raises LoadError."""
    here = os.sched_getaffinity(0)
    missing = [cpu for cpu in settings.cpus if cpu not in here]
    if missing:
        raise LoadError(f"cpus: {missing} given; allowed: those of this worker, {sorted(here)}")
    return instance_plan.plan(execution.instances, execution.intra_op_threads, settings.cpus)


def _model(spec: VersionSpec, way: _Way, sessions: Sequence[Session]) -> Model:
    return Model(
        sessions=sessions,
        signature=spec.signature,
        batched=way.batched,
        steady=way.steady,
        padding=way.padding,
        max_rows=way.execution.max_batch_size,
        cpus=[instance.cpus for instance in way.plan],
    )


def _warm(spec: VersionSpec, session: Session) -> None:
    names = [output.name for output in spec.signature.outputs]
    example.check_answer(spec.signature, lambda feeds: session.run(feeds, names))


def _tell(spec: VersionSpec, execution: Execution, report: ProbeReport) -> None:
    reasons = {
        "batching_off": execution.batching_off_reason,
        "padding_off": report.padding_reason,
    }
    _log.info(
        "version ready",
        version=str(spec.name),
        max_batch_size=execution.max_batch_size,
        instances=execution.instances,
        intra_op_threads=execution.intra_op_threads,
        **{key: why for key, why in reasons.items() if why},
    )
