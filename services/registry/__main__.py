"""The registry process: reads settings, builds the parts, serves until SIGTERM or SIGINT."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import structlog
from inferplane.discovery.v1 import discovery_service_pb2, discovery_service_pb2_grpc
from inferplane.openai.v1 import openai_service_pb2, openai_service_pb2_grpc
from inferplane.registry.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    endpoint_service_pb2,
    endpoint_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
    placement_service_pb2,
    placement_service_pb2_grpc,
    watch_service_pb2,
    watch_service_pb2_grpc,
)
from prometheus_client import REGISTRY, CollectorRegistry

from services.registry.adapters.disk_blob_store import DiskBlobStore
from services.registry.adapters.kept_state import State, open_state
from services.registry.adapters.memory_store import MemoryStore
from services.registry.adapters.probe_inspector import ProbeInspector
from services.registry.adapters.router_routes import RouterRoutes
from services.registry.adapters.sql_store import SqlStore
from services.registry.adapters.state_metrics import StateMetrics
from services.registry.drivers.blob_reaper import BlobReaper
from services.registry.drivers.declarations import Declarations
from services.registry.drivers.endpoints import Endpoints
from services.registry.drivers.language_endpoints import LanguageEndpoints
from services.registry.drivers.leases import Leases
from services.registry.drivers.models import Aliases, Models
from services.registry.drivers.placements import Placements
from services.registry.drivers.repository import Repository, Surroundings
from services.registry.drivers.tunings import Tunings
from services.registry.drivers.upload_sweep import UploadSweep
from services.registry.drivers.uploads import Uploads
from services.registry.drivers.versions import Versions
from services.registry.drivers.watch import Watches
from services.registry.ports.edge_routes import EdgeRoutes
from services.registry.ports.live_workers import LiveWorkers
from services.registry.ports.tenure import Tenure
from services.registry.servicers.artifact_service import ArtifactService
from services.registry.servicers.discovery_service import DiscoveryService
from services.registry.servicers.endpoint_service import EndpointService
from services.registry.servicers.model_service import ModelService, UseCases
from services.registry.servicers.openai_models import OpenAiModels
from services.registry.servicers.placement_service import PlacementService
from services.registry.servicers.repository_service import SERVICES, RepositoryService
from services.registry.servicers.standby_guard import StandbyGuard
from services.registry.servicers.watch_service import WatchService
from services.registry.servicers.worker_messages import read_worker
from services.registry.settings import RegistrySettings
from services.rpc import peers
from services.rpc.clock import Clock, SystemClock
from services.rpc.completion import done_before
from services.rpc.each_peer import EachPeer
from services.rpc.errors import InferplaneError, UnavailableError
from services.rpc.metrics import MetricsInterceptor
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer, stop_requested
from services.rpc.settings import SettingsError, load
from services.rpc.telemetry import configure_logs, serve_metrics
from services.rpc.tls import Security

_log = structlog.get_logger(__name__)

# For calls to be told that another process serves; cut off sooner, they would hear CANCELLED, which says nothing.
_SUPERSEDED_SECONDS = 5.0
_LEAST_MESSAGE_BYTES = 8 * 1024 * 1024  # what chunks, pages and watch responses need
# Who may call over TLS; workers no more than what they need.
_CALLERS = frozenset({PeerKind.EDGE, PeerKind.SERVICE})
_CALLERS_OF = dict.fromkeys(
    (
        "grpc.health.v1.Health",
        "inferplane.registry.v1.WatchService",
        "inferplane.registry.v1.ArtifactService/DownloadArtifact",
        "inferplane.registry.v1.ModelService/SetModelVersionTuning",
        "inferplane.discovery.v1.DiscoveryService/RegisterWorker",
        "inferplane.discovery.v1.DiscoveryService/DeregisterWorker",
    ),
    _CALLERS | {PeerKind.WORKER},
)
_SERVICES = [
    service.full_name
    for module in (
        model_service_pb2,
        artifact_service_pb2,
        endpoint_service_pb2,
        placement_service_pb2,
        watch_service_pb2,
        discovery_service_pb2,
        openai_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
]


@asynccontextmanager
async def open_routes(
    settings: RegistrySettings, security: Security
) -> AsyncIterator[RouterRoutes | None]:
    """The routers to ask whether what was loaded is routed, if there are any."""
    if not settings.router_address:
        yield None
        return
    async with EachPeer(settings.router_address, security) as routers:
        yield RouterRoutes(routers)


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs in the process besides the server."""

    store: SqlStore | MemoryStore
    blobs: DiskBlobStore
    tenure: Tenure
    reaper: BlobReaper
    versions: Versions
    declarations: Declarations
    leases: LiveWorkers
    watches: Watches
    sweep: UploadSweep
    repository: Repository


def live_workers(settings: RegistrySettings, clock: Clock) -> LiveWorkers:
    """The list of live workers: our own leases, or Consul's."""
    if not settings.in_consul:
        return Leases(clock)
    # A client of HTTP takes its time to import; who needs none begins at once.
    from services.registry.adapters.consul_workers import ConsulWorkers
    from services.rpc.consul import Consul, ConsulAccess

    return ConsulWorkers(Consul(ConsulAccess.of(settings)), clock, read_worker)


def build(
    settings: RegistrySettings,
    state: State,
    routes: EdgeRoutes | None,
) -> Parts:
    """Put the parts together."""
    store, blobs = state.store, state.blobs
    clock = SystemClock()
    reaper = BlobReaper(store, blobs)
    versions = Versions(store, blobs, reaper, ProbeInspector(seconds=settings.inspect_seconds))
    leases = live_workers(settings, clock)
    ttl = timedelta(seconds=settings.upload_ttl_seconds)
    return Parts(
        store=store,
        blobs=blobs,
        tenure=state.tenure,
        reaper=reaper,
        versions=versions,
        leases=leases,
        watches=Watches(store),
        sweep=UploadSweep(store, blobs, versions, clock, ttl),
        declarations=Declarations(store, reaper, clock, settings.max_file_bytes),
        repository=Repository(
            store, Surroundings(leases, clock, routes), seconds=settings.load_seconds
        ),
    )


def register(server: RpcServer, parts: Parts) -> None:
    """Put the services on the server."""
    store, clock = parts.store, SystemClock()
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        ModelService(
            UseCases(
                models=Models(store, parts.reaper, clock),
                declarations=parts.declarations,
                versions=parts.versions,
                tunings=Tunings(store),
                aliases=Aliases(store, clock),
            ),
            clock,
        ),
        server.grpc,
    )
    artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(
        ArtifactService(Uploads(store, parts.blobs, parts.reaper)), server.grpc
    )
    endpoint_service_pb2_grpc.add_EndpointServiceServicer_to_server(
        EndpointService(Endpoints(store, clock)), server.grpc
    )
    placement_service_pb2_grpc.add_PlacementServiceServicer_to_server(
        PlacementService(Placements(store, clock), parts.leases), server.grpc
    )
    watch_service_pb2_grpc.add_WatchServiceServicer_to_server(
        WatchService(parts.watches), server.grpc
    )
    discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server(
        DiscoveryService(parts.leases), server.grpc
    )
    openai_service_pb2_grpc.add_OpenAiServiceServicer_to_server(
        OpenAiModels(LanguageEndpoints(store)), server.grpc
    )
    RepositoryService(parts.repository).add_to(server.grpc)


def state_metrics(parts: Parts, guard: StandbyGuard) -> StateMetrics:
    """Gauges of what the registry holds, and of whether it is the one that serves."""
    return StateMetrics(
        {
            "active": ("1 while this process serves, 0 while it stands by.", lambda: guard.serving),
            "revision": ("Newest revision.", lambda: parts.store.revision),
            "blob_bytes": ("Bytes of complete contents.", lambda: parts.blobs.total_bytes),
            "watchers": ("Open watches of resources.", lambda: parts.watches.readers),
            "leases": ("Live workers.", lambda: len(parts.leases)),
        }
    )


async def serve(
    settings: RegistrySettings, stop: asyncio.Event, metrics: CollectorRegistry = REGISTRY
) -> None:
    """Serve until `stop` is set, then finish what runs. UnavailableError if another process serves by then."""
    security = settings.security()
    async with AsyncExitStack() as stack:
        state = await stack.enter_async_context(open_state(settings))
        routes = await stack.enter_async_context(open_routes(settings, security))
        parts = build(settings, state, routes)
        stack.push_async_callback(parts.tenure.end)
        guard = StandbyGuard(
            peers.guard(settings.registry_address, security, _CALLERS, _CALLERS_OF)
        )
        metrics.register(state_metrics(parts, guard))
        serve_metrics(settings.metrics_address)
        server = RpcServer(
            address=settings.registry_address,
            max_message_bytes=max(settings.max_message_bytes, _LEAST_MESSAGE_BYTES),
            interceptors=[MetricsInterceptor(metrics)],
            security=security,
            guard=guard,
        )
        register(server, parts)
        if parts.tenure.sole:
            await _begin(parts)
            guard.serving = True
        await server.start([*_SERVICES, *SERVICES])
        superseded = False
        try:
            if parts.tenure.sole or await done_before(stop, asyncio.create_task(_begin(parts))):
                superseded = await _serve_tenure(server, parts, guard, stop)
        finally:
            grace = _SUPERSEDED_SECONDS if superseded else settings.drain_seconds
            await server.stop(min(grace, settings.drain_seconds))
    if superseded:
        raise UnavailableError(
            "another registry has taken over, or the database can't be reached; this process ends, and"
            " is to be started again, to stand by",
            reason="STANDBY",
        )


async def _begin(parts: Parts) -> None:
    await parts.tenure.begin()
    await parts.reaper.sweep()


async def _serve_tenure(
    server: RpcServer, parts: Parts, guard: StandbyGuard, stop: asyncio.Event
) -> bool:
    """Serve until `stop` is set, or another process does: True then."""

    async def doubt(*, doubtful: bool) -> None:
        guard.serving = not doubtful
        await server.set_health("", serving=not doubtful)

    async with asyncio.TaskGroup() as background:
        tasks = [
            background.create_task(parts.leases.run()),
            background.create_task(parts.sweep.run()),
            background.create_task(parts.store.follow()),
        ]
        await doubt(doubtful=False)
        if await done_before(stop, asyncio.create_task(parts.tenure.over(doubt))):
            guard.serving = False
        for task in tasks:
            task.cancel()
        # Watches would run for ever; ended first, they don't hold up the drain.
        parts.store.close()
        parts.leases.close()
    return not stop.is_set()


async def _run(settings: RegistrySettings) -> None:
    await serve(settings, stop_requested())


def main() -> int:
    """Run the process; returns its exit code."""
    try:
        settings = load(RegistrySettings)
        configure_logs(service="registry", level=settings.log_level, style=settings.log_style)
        asyncio.run(_run(settings))
    except (InferplaneError, SettingsError) as error:
        sys.stderr.write(f"registry: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
