"""A small real registry over gRPC in the test's own process: versions, placements, leases; it can break on purpose.

The real one refuses bad artifacts at the door; this one hands them out, to show that the worker does not rely on that.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from inferplane.discovery.v1 import discovery_service_pb2 as discovery
from inferplane.discovery.v1 import discovery_service_pb2_grpc, worker_pb2
from inferplane.registry.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    model_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    placement_pb2,
    watch_service_pb2,
    watch_service_pb2_grpc,
)

from tests.models.artifact import Artifact

Context = grpc.aio.ServicerContext[Any, Any]
State = placement_pb2.LoadState


@dataclass
class Registry:
    """What is registered and who reported; change it, then `publish`."""

    versions: dict[str, model_pb2.ModelVersion] = field(default_factory=dict)
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    placements: dict[str, placement_pb2.Placement] = field(default_factory=dict)
    workers: dict[str, worker_pb2.Worker] = field(default_factory=dict)
    reports: list[worker_pb2.Worker] = field(default_factory=list)
    downloads: list[tuple[str, str, int]] = field(default_factory=list)
    chunk: int = 1 << 16
    held: dict[str, asyncio.Event] = field(
        default_factory=dict
    )  # by version: downloads wait for it
    break_after: int | None = None  # bytes after which the next download breaks
    revision: int = 0
    deleted: list[watch_service_pb2.Change] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def put(
        self,
        name: str,
        artifact: Artifact,
        settings: model_pb2.VersionSettings | None = None,
        pool: str = "default",
    ) -> None:
        """Register a version and place it."""
        version = artifact.message(name, settings or model_pb2.VersionSettings())
        version.create_time.FromNanoseconds(1_000 + self.revision)
        self.versions[name] = version
        for path, data in artifact.files.items():
            self.files[name, path] = data
        await self.place(name, pool)

    async def place(self, name: str, pool: str = "default") -> None:
        """Place a version, or place it anew."""
        _, model, _, version = name.split("/")
        placed = f"pools/{pool}/placements/{model}@{version}"
        placement = placement_pb2.Placement(name=placed, version=name)
        placement.create_time.FromNanoseconds(1_000 + self.revision)
        self.placements[placed] = placement
        await self.publish()

    async def remove(self, name: str, pool: str = "default") -> None:
        """Take a version off its pool."""
        _, model, _, version = name.split("/")
        placed = f"pools/{pool}/placements/{model}@{version}"
        del self.placements[placed]
        self.deleted.append(
            watch_service_pb2.Change(name=placed, kind=watch_service_pb2.RESOURCE_KIND_PLACEMENT)
        )
        await self.publish()

    async def tune(self, name: str, tuning: model_pb2.VersionTuning | None) -> None:
        """Keep a tuning with a version, or have it measured again."""
        version = model_pb2.ModelVersion()
        version.CopyFrom(self.versions[name])
        version.ClearField("tuning")
        version.measuring_wanted = tuning is None
        if tuning is not None:
            version.tuning.CopyFrom(tuning)
        self.versions[name] = version
        await self.publish()

    async def publish(self) -> None:
        """Let watchers and waiting tests look again."""
        self.revision += 1
        async with self.changed:
            self.changed.notify_all()

    def changes(self) -> list[watch_service_pb2.Change]:
        """Everything as it is, and what is gone."""
        kind = watch_service_pb2
        return [
            *(
                kind.Change(name=n, kind=kind.RESOURCE_KIND_MODEL_VERSION, model_version=v)
                for n, v in self.versions.items()
            ),
            *(
                kind.Change(name=n, kind=kind.RESOURCE_KIND_PLACEMENT, placement=p)
                for n, p in self.placements.items()
            ),
            *(c for c in self.deleted if c.name not in self.placements),
        ]

    async def until(self, holds: Any, seconds: float = 60.0) -> Any:
        """Wait until `holds()` gives something true, looking after each change; returns it."""
        async with asyncio.timeout(seconds), self.changed:
            return await self.changed.wait_for(holds)

    async def until_state(self, version: str, state: str, seconds: float = 60.0) -> Any:
        """Wait until some live worker reports a state for a version; returns what it reports."""
        wanted = State.Value(f"LOAD_STATE_{state}")

        def found() -> worker_pb2.WorkerVersion | None:
            for worker in self.workers.values():
                for reported in worker.versions:
                    if reported.version == version and reported.state == wanted:
                        return reported
            return None

        return await self.until(found, seconds)


class _Servicer(
    watch_service_pb2_grpc.WatchServiceServicer,
    artifact_service_pb2_grpc.ArtifactServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
    discovery_service_pb2_grpc.DiscoveryServiceServicer,
):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def Watch(
        self, request: watch_service_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[watch_service_pb2.WatchResponse]:
        registry = self._registry
        if request.after_revision > registry.revision:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, "revision not kept")
        sent = -1
        while True:
            async with registry.changed:
                while registry.revision == sent:
                    await registry.changed.wait()
            sent = registry.revision
            yield watch_service_pb2.WatchResponse(
                changes=registry.changes(), revision=sent, synced=True
            )

    async def DownloadArtifact(
        self, request: artifact_service_pb2.DownloadArtifactRequest, context: Context
    ) -> AsyncIterator[artifact_service_pb2.DownloadArtifactResponse]:
        registry = self._registry
        registry.downloads.append((request.name, request.path, request.offset))
        if request.name in registry.held:
            await registry.held[request.name].wait()
        data = registry.files[request.name, request.path]
        for start in range(request.offset, len(data), registry.chunk):
            if registry.break_after is not None and start - request.offset >= registry.break_after:
                registry.break_after = None
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            yield artifact_service_pb2.DownloadArtifactResponse(
                chunk=data[start : start + registry.chunk]
            )

    async def SetModelVersionTuning(
        self, request: model_service_pb2.SetModelVersionTuningRequest, context: Context
    ) -> model_service_pb2.SetModelVersionTuningResponse:
        version = self._registry.versions[request.name]
        if not (request.only_if_unset and version.HasField("tuning")):
            await self._registry.tune(request.name, request.tuning)
        return model_service_pb2.SetModelVersionTuningResponse(
            model_version=self._registry.versions[request.name]
        )

    async def RegisterWorker(
        self, request: discovery.RegisterWorkerRequest, context: Context
    ) -> discovery.RegisterWorkerResponse:
        registry = self._registry
        registry.workers[request.worker.name] = request.worker
        registry.reports.append(request.worker)
        async with registry.changed:
            registry.changed.notify_all()
        return discovery.RegisterWorkerResponse(worker=request.worker)

    async def DeregisterWorker(
        self, request: discovery.DeregisterWorkerRequest, context: Context
    ) -> discovery.DeregisterWorkerResponse:
        self._registry.workers.pop(request.name, None)
        async with self._registry.changed:
            self._registry.changed.notify_all()
        return discovery.DeregisterWorkerResponse()


@asynccontextmanager
async def serving(registry: Registry, address: str) -> AsyncIterator[None]:
    """Serve a registry on an address; leaving stops it at once, entering again with the same one is a restart."""
    server = grpc.aio.server()
    servicer = _Servicer(registry)  # type: ignore[abstract] # the worker calls no other method
    watch_service_pb2_grpc.add_WatchServiceServicer_to_server(servicer, server)
    artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(servicer, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicer, server)
    discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
