"""Composition root of the worker: `python -m services.worker`."""

import asyncio
import os
import secrets
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import NoReturn

import grpc
import prometheus_client
import structlog
import uvloop

from services.rpc import channel, server, settings, telemetry
from services.rpc.completion import done_before
from services.rpc.names import WorkerName
from services.worker.accounting import accounting
from services.worker.adapters import machine
from services.worker.adapters.artifact_cache import DiskArtifactCache
from services.worker.adapters.child_probe import ChildProbe, ProbeBounds
from services.worker.adapters.child_rerun import ChildReruns
from services.worker.adapters.discovery_client import Identity
from services.worker.adapters.engine_metrics import MeteredEngines
from services.worker.adapters.flight_box import FlightBoxes
from services.worker.adapters.machine_memory import bytes_allowed
from services.worker.adapters.metrics import PrometheusMeter
from services.worker.adapters.onnx_session import OnnxSessionLoader
from services.worker.adapters.probe_cache import CachedProbe
from services.worker.adapters.registry_client import RegistryAssignments, RegistryFiles
from services.worker.adapters.runtime_memory import RuntimeMemory, share_heaps
from services.worker.adapters.tuning_client import RegistryTunings
from services.worker.drivers.assignments import AssignmentFollower
from services.worker.drivers.flight_watch import FlightWatch
from services.worker.drivers.roster import Roster
from services.worker.drivers.runner_parts import RunnerDefaults, RunnerParts
from services.worker.drivers.upkeep import Upkeep
from services.worker.drivers.worker import Worker
from services.worker.listening import Listening, listening
from services.worker.llm.adapters.graph_child import BuildBounds
from services.worker.llm.adapters.model_loader import FileModelLoader
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.ports.languages import Languages
from services.worker.reach import beside, reached_at
from services.worker.registration import registration
from services.worker.servicers.grpc_inference import AnswerSource
from services.worker.servicers.text_answer import ReaderBounds
from services.worker.settings import WorkerSettings
from services.worker.texts import Texts, texts

_log = structlog.get_logger("services.worker")

RELEASE = "0.1.0"
_QUIET_SECONDS = 0.5  # silence after which no route leads here any more
_LAST_GRACE = 1.0  # seconds for calls that still run when the grace time is over


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where versions come from, and what is known of them."""

    cache: DiskArtifactCache
    probe: CachedProbe
    tunings: RegistryTunings
    flights: FlightBoxes
    reruns: ChildReruns


async def serve(config: WorkerSettings) -> None:
    """Start, serve until SIGTERM or SIGINT, drain, stop."""
    stop = server.stop_requested()
    name = WorkerName(f"{config.pool[:54]}-{secrets.token_hex(4)}")
    structlog.contextvars.bind_contextvars(worker=name.worker)
    security = config.security()
    async with AsyncExitStack() as stack:
        registry = await stack.enter_async_context(
            channel.connect(config.registry_address, security=security)
        )
        rpc = listening(config, security)
        worker = Worker(lease_seconds=config.lease_seconds, health=rpc)
        memory = RuntimeMemory(config.run_memory_bytes or bytes_allowed() * 3 // 4)
        sources = _sources(config, name, registry, stack)
        looked_at = await asyncio.to_thread(texts, config)
        stack.callback(looked_at.captures.close)
        counting = await accounting(config, name, looked_at.watch.scores, stack)
        parts = _parts(config, worker, rpc, sources, memory)
        roster = worker.furnish(
            replace(parts, accounts=None if counting is None else counting.accounts)
        )
        rpc.serve(_answer_source(config, roster, worker, looked_at))
        bound = await rpc.start()
        stack.push_async_callback(rpc.stop, _LAST_GRACE)
        place = asyncio.create_task(reached_at(config, bound))
        if not await done_before(stop, place):
            return  # nobody has been told of this worker yet
        identity = _identity(config, name, place.result())
        lease = await registration(config, security, identity, stack)
        follower = AssignmentFollower(RegistryAssignments(registry), config.pool, roster.assign)
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(worker.heartbeat.run(lease)),
                tasks.create_task(follower.run()),
                tasks.create_task(roster.run()),
                tasks.create_task(Upkeep(memory).run()),
                tasks.create_task(FlightWatch(sources.flights).run()),
                tasks.create_task(looked_at.desk.run()),
                *(tasks.create_task(loop) for loop in (counting.loops() if counting else ())),
            ]
            becoming = tasks.create_task(worker.become_ready())
            await stop.wait()
            becoming.cancel()
            await worker.drain(_QUIET_SECONDS, config.drain_seconds)
            await rpc.stop(_LAST_GRACE)
            for loop in loops:
                loop.cancel()
        await lease.end()
        if counting is not None:
            await counting.finish()


def _sources(
    config: WorkerSettings, name: WorkerName, registry: grpc.aio.Channel, stack: AsyncExitStack
) -> _Sources:
    folder = config.state_dir / "cache"
    probe = _probe(config, name)
    stack.callback(probe.close)
    sources = _Sources(
        DiskArtifactCache(folder, RegistryFiles(registry), config.cache_bytes, name.worker),
        probe,
        RegistryTunings(registry),
        FlightBoxes(folder / "flights", name.worker),
        ChildReruns(_bounds(config)),
    )
    sources.flights.open()
    stack.callback(sources.flights.close)
    return sources


def _answer_source(
    config: WorkerSettings, roster: Roster, worker: Worker, looked_at: Texts
) -> AnswerSource:
    return AnswerSource(
        roster,
        worker.is_ready,
        RELEASE,
        config.max_message_bytes,
        reader=ReaderBounds(config.stalled_reader_seconds, config.stalled_reader_bytes),
        watch=looked_at.watch,
    )


def _parts(
    config: WorkerSettings,
    worker: Worker,
    rpc: Listening,
    sources: _Sources,
    memory: RuntimeMemory,
) -> RunnerParts:
    return RunnerParts(
        cache=sources.cache,
        probe=sources.probe,
        tunings=sources.tunings,
        flights=sources.flights,
        reruns=sources.reruns,
        loader=OnnxSessionLoader(
            intra_op_threads=config.intra_op_threads,
            execution_providers=config.execution_providers,
            memory=memory,
        ),
        meter=PrometheusMeter(prometheus_client.REGISTRY),
        languages=_languages(config, memory),
        health=rpc,
        traffic=worker.traffic,
        loads=asyncio.Semaphore(config.loads_at_once),
        changed=worker.heartbeat.ask,
        announced=worker.heartbeat.announce,
        delivered=rpc.flush,
        defaults=RunnerDefaults(
            max_batch_size=config.max_batch_size,
            max_queued_rows=config.max_queue_rows,
            max_queued_bytes=config.max_queue_bytes,
            concurrent_runs=config.concurrent_runs,
            intra_op_threads=config.intra_op_threads,
            max_queue_seconds=config.max_queue_seconds,
            drain_seconds=config.drain_seconds,
            stall_seconds=config.stall_seconds,
            quiet_seconds=_QUIET_SECONDS,
        ),
    )


def _languages(config: WorkerSettings, memory: RuntimeMemory) -> Languages:
    defaults = EngineSettings(
        kv_cache_bytes=config.kv_cache_bytes,
        max_running_requests=config.max_running_requests,
        max_step_tokens=config.max_step_tokens,
        max_queue_requests=config.max_queue_requests,
        max_output_tokens=config.max_output_tokens,
        target=Target(config.generation_target),
        threads=config.engine_threads or len(os.sched_getaffinity(0)),
        execution_providers=config.execution_providers,
    )
    loader = FileModelLoader(
        config.state_dir / "cache" / "graphs",
        bounds=BuildBounds(memory_bytes=config.load_memory_bytes),
        memory=memory,
    )
    return Languages(loader, MeteredEngines(prometheus_client.REGISTRY), defaults)


def _bounds(config: WorkerSettings) -> ProbeBounds:
    return ProbeBounds(
        intra_op_threads=config.intra_op_threads,
        execution_providers=config.execution_providers,
        max_batch_size=config.max_batch_size,
        memory_bytes=config.load_memory_bytes,
        seconds=config.load_timeout_seconds,
        tune_seconds=config.tune_seconds,
    )


def _probe(config: WorkerSettings, name: WorkerName) -> CachedProbe:
    bounds = _bounds(config)
    place, facts = config.state_dir / "cache" / "probes", f"{machine.fingerprint()}, {bounds}"
    return CachedProbe(ChildProbe(bounds), place, facts, name.worker)


def _identity(config: WorkerSettings, name: WorkerName, address: str) -> Identity:
    return Identity(
        name=name,
        pool=config.pool,
        zone=config.zone,
        address=address,
        pid=os.getpid(),
        release=RELEASE,
        metrics_address=beside(address, telemetry.serve_metrics(config.metrics_address)),
        start_ns=time.time_ns(),
    )


def _exit(code: int) -> NoReturn:
    # A model that computes for ever does so in a thread, which a usual exit would wait for.
    sys.stderr.flush()
    os._exit(code)


async def _serve_and_exit(config: WorkerSettings) -> NoReturn:
    try:
        await serve(config)
    except Exception:  # noqa: BLE001 - the end of the process, loudly
        _log.exception("worker failed")
        _exit(1)
    _exit(0)


def main() -> None:
    """Read settings and serve; a wrong setting ends with status 2."""
    try:
        config = settings.load(WorkerSettings)
    except settings.SettingsError as error:
        sys.exit(f"{error}")
    telemetry.configure_logs(service="worker", level=config.log_level, style=config.log_style)
    share_heaps()
    uvloop.run(_serve_and_exit(config))


if __name__ == "__main__":
    main()
