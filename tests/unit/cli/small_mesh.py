"""Small servicers that keep resources in memory and break where a test says so; served by the real server."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from inferplane.discovery.v1 import (
    discovery_service_pb2,
    discovery_service_pb2_grpc,
    worker_pb2,
)
from inferplane.registry.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    endpoint_pb2,
    endpoint_service_pb2,
    endpoint_service_pb2_grpc,
    model_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    placement_pb2,
    placement_service_pb2,
    placement_service_pb2_grpc,
)
from inferplane.router.v1 import router_service_pb2, router_service_pb2_grpc

from services.rpc.errors import (
    AbortedError,
    AlreadyExistsError,
    DataLossError,
    NotFoundError,
    OutOfRangeError,
    UnavailableError,
)
from services.rpc.server import RpcServer

_LIMIT = 64 * 1024 * 1024
_CHUNK = 64 * 1024


@dataclass
class Store:
    """What the small mesh holds, and where it breaks."""

    versions: dict[str, model_pb2.ModelVersion] = field(default_factory=dict)
    bytes: dict[tuple[str, str], bytes] = field(default_factory=dict)
    endpoints: dict[str, endpoint_pb2.Endpoint] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    placements: list[str] = field(default_factory=list)
    workers: "asyncio.Queue[list[worker_pb2.Worker]]" = field(default_factory=asyncio.Queue)
    break_after: list[int] = field(default_factory=list)  # bytes of a stream after which it breaks
    takes_nothing: bool = False  # every upload breaks before its first byte
    stop_after: int | None = None  # bytes of an upload after which nothing is taken any more
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    others_write: int = 0  # so many updates find that somebody else was quicker
    others_create: endpoint_pb2.Endpoint | None = None  # made by somebody else just before
    others_finish: bool = False  # a version is finished by somebody else just before
    uploads: list[tuple[str, int]] = field(default_factory=list)  # path and offset of each
    is_routed: bool = True
    statuses: list[placement_pb2.Placement] = field(
        default_factory=list
    )  # what is listed as placed
    measured: list[model_pb2.VersionTuning] = field(default_factory=list)  # found at one look each

    def breaks(self) -> int | None:
        """After how many bytes the next stream breaks."""
        return self.break_after.pop(0) if self.break_after else None


class _Models(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def CreateModelVersion(self, request: Any, context: Any) -> Any:
        name = f"{request.parent}/versions/{request.version_id}"
        there = self._store.versions.get(name)
        if there is not None and there.state == model_pb2.VERSION_STATE_READY:
            raise AlreadyExistsError(f"{name} exists already")
        version = there or model_pb2.ModelVersion()
        version.MergeFrom(request.model_version if there is None else model_pb2.ModelVersion())
        version.name, version.state = name, model_pb2.VERSION_STATE_UPLOADING
        version.size_bytes = sum(f.size_bytes for f in version.files)
        self._store.versions[name] = version
        return model_service_pb2.CreateModelVersionResponse(model_version=version)

    async def FinishModelVersion(self, request: Any, context: Any) -> Any:
        version = self._store.versions[request.name]
        version.state = model_pb2.VERSION_STATE_READY
        if self._store.others_finish:
            raise AbortedError(f"{request.name} was declared anew")
        return model_service_pb2.FinishModelVersionResponse(model_version=version)

    async def GetModelVersion(self, request: Any, context: Any) -> Any:
        if request.name not in self._store.versions:
            raise NotFoundError(f"{request.name} does not exist")
        version = self._store.versions[request.name]
        if version.measuring_wanted and self._store.measured:
            found = self._store.measured.pop(0)
            if found.instances:
                version.tuning.CopyFrom(found)
                version.measuring_wanted = False
        return model_service_pb2.GetModelVersionResponse(model_version=version)

    async def SetModelVersionTuning(self, request: Any, context: Any) -> Any:
        version = self._store.versions[request.name]
        assert not request.HasField("tuning")
        version.ClearField("tuning")
        version.measuring_wanted = request.measure
        return model_service_pb2.SetModelVersionTuningResponse(model_version=version)

    async def ListModelVersions(self, request: Any, context: Any) -> Any:
        """Pages of one, so that reading all pages is tested too."""
        found = [v for n, v in self._store.versions.items() if n.startswith(request.parent + "/")]
        if not found:
            raise NotFoundError(f"{request.parent} does not exist")
        index = int(request.page_token or 0)
        following = str(index + 1) if index + 1 < len(found) else ""
        return model_service_pb2.ListModelVersionsResponse(
            model_versions=[found[index]], next_page_token=following
        )

    async def GetAlias(self, request: Any, context: Any) -> Any:
        if request.name not in self._store.aliases:
            raise NotFoundError(f"{request.name} does not exist")
        alias = model_pb2.Alias(name=request.name, version=self._store.aliases[request.name])
        return model_service_pb2.GetAliasResponse(alias=alias)


class _Artifacts(artifact_service_pb2_grpc.ArtifactServiceServicer):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def GetUpload(self, request: Any, context: Any) -> Any:
        files = [
            artifact_service_pb2.GetUploadResponse.StoredFile(
                path=file.path,
                stored_bytes=len(self._store.bytes.get((request.name, file.path), b"")),
            )
            for file in self._store.versions[request.name].files
        ]
        return artifact_service_pb2.GetUploadResponse(files=files)

    async def UploadArtifact(self, request_iterator: Any, context: Any) -> Any:
        first = (await anext(request_iterator)).start
        key = (first.name, first.path)
        self._store.uploads.append((first.path, first.offset))
        stored = self._store.bytes.get(key, b"")
        if first.offset != len(stored):
            raise OutOfRangeError("offset", metadata={"stored_bytes": str(len(stored))})
        if self._store.takes_nothing:
            raise UnavailableError("no room")
        limit = self._store.breaks() if first.path == "w.bin" else None
        async for message in request_iterator:
            stored += message.chunk
            self._store.bytes[key] = stored
            if limit is not None and len(stored) - first.offset >= limit:
                raise UnavailableError("the connection broke")
            if self._store.stop_after is not None and len(stored) >= self._store.stop_after:
                self._store.stopped.set()
                await asyncio.Event().wait()
        declared = next(f for f in self._store.versions[first.name].files if f.path == first.path)
        complete = len(stored) == declared.size_bytes
        if complete and hashlib.sha256(stored).hexdigest() != declared.sha256:
            raise DataLossError(f"{first.path} has another digest")
        self._store.bytes[key] = stored
        return artifact_service_pb2.UploadArtifactResponse(
            stored_bytes=len(stored), complete=complete
        )

    async def DownloadArtifact(self, request: Any, context: Any) -> AsyncIterator[Any]:
        content = self._store.bytes[request.name, request.path]
        limit, sent = (self._store.breaks() if request.path == "w.bin" else None), 0
        for start in range(request.offset, len(content), _CHUNK):
            if limit is not None and sent >= limit:
                raise UnavailableError("the connection broke")
            chunk = content[start : start + _CHUNK]
            sent += len(chunk)
            yield artifact_service_pb2.DownloadArtifactResponse(chunk=chunk)


class _Endpoints(endpoint_service_pb2_grpc.EndpointServiceServicer):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def GetEndpoint(self, request: Any, context: Any) -> Any:
        if request.name not in self._store.endpoints:
            raise NotFoundError(f"{request.name} does not exist")
        endpoint = self._store.endpoints[request.name]
        return endpoint_service_pb2.GetEndpointResponse(endpoint=endpoint)

    async def CreateEndpoint(self, request: Any, context: Any) -> Any:
        endpoint = request.endpoint
        endpoint.name, endpoint.etag = f"endpoints/{request.endpoint_id}", "1"
        if self._store.others_create is not None:
            self._store.endpoints[endpoint.name] = self._store.others_create
            raise AlreadyExistsError(f"{endpoint.name} exists already")
        self._store.endpoints[endpoint.name] = endpoint
        return endpoint_service_pb2.CreateEndpointResponse(endpoint=endpoint)

    async def UpdateEndpoint(self, request: Any, context: Any) -> Any:
        there = self._store.endpoints[request.endpoint.name]
        if self._store.others_write:
            self._store.others_write -= 1
            there.description += "!"
            there.etag += "x"
        if request.endpoint.etag != there.etag:
            raise AbortedError("somebody else was quicker")
        assert list(request.update_mask.paths) == ["targets"]
        del there.targets[:]
        there.targets.extend(request.endpoint.targets)
        return endpoint_service_pb2.UpdateEndpointResponse(endpoint=there)


class _Placements(placement_service_pb2_grpc.PlacementServiceServicer):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def CreatePlacement(self, request: Any, context: Any) -> Any:
        name = f"{request.parent} {request.placement.version}"
        if name in self._store.placements:
            raise AlreadyExistsError(f"{name} exists already")
        self._store.placements.append(name)
        return placement_service_pb2.CreatePlacementResponse(placement=request.placement)

    async def ListPlacements(self, request: Any, context: Any) -> Any:
        return placement_service_pb2.ListPlacementsResponse(placements=self._store.statuses)


class _Discovery(discovery_service_pb2_grpc.DiscoveryServiceServicer):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def WatchWorkers(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Each item of the queue is a state of the workers; an empty queue is a quiet stream."""
        while True:
            workers = await self._store.workers.get()
            if workers and workers[0].name == "break":
                raise UnavailableError("the registry restarts")
            yield discovery_service_pb2.WatchWorkersResponse(workers=workers)


class _Router(router_service_pb2_grpc.RouterServiceServicer):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def GetStatus(self, request: Any, context: Any) -> Any:
        status = router_service_pb2.GetStatusResponse()
        envoy = status.envoys.add(node_id="edge", in_sync=self._store.is_routed)
        if not self._store.is_routed:
            envoy.nack_count = 1
            envoy.last_nack.message = "no such filter"
        for endpoint in self._store.endpoints.values():
            routed = status.endpoints.add(name=endpoint.name)
            total = sum(target.weight for target in endpoint.targets)
            for target in endpoint.targets:
                routed.targets.add(target=target.target, declared_share=target.weight / total)
        return status


@asynccontextmanager
async def serving(store: Store) -> AsyncIterator[str]:
    """The small mesh on a free port; yields its address."""
    server = RpcServer(address="127.0.0.1:0", max_message_bytes=_LIMIT)
    _register(store, server.grpc)
    address = await server.start([])
    try:
        yield address
    finally:
        await server.stop(0)


# The servicers are small on purpose: what they lack answers UNIMPLEMENTED, hence the ignored abstract classes.
def _register(store: Store, server: grpc.aio.Server) -> None:
    models = _Models(store)  # type: ignore[abstract]  # small, see above
    endpoints = _Endpoints(store)  # type: ignore[abstract]  # small, see above
    placements = _Placements(store)  # type: ignore[abstract]  # small, see above
    discovery = _Discovery(store)  # type: ignore[abstract]  # small, see above
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(models, server)
    artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(_Artifacts(store), server)
    endpoint_service_pb2_grpc.add_EndpointServiceServicer_to_server(endpoints, server)
    placement_service_pb2_grpc.add_PlacementServiceServicer_to_server(placements, server)
    discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server(discovery, server)
    router_service_pb2_grpc.add_RouterServiceServicer_to_server(_Router(store), server)


class HeardReport:
    """A report that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.begun: list[tuple[str, int, int]] = []
        self.moved = 0
        self.on_say: Callable[[], None] = lambda: None

    def say(self, text: str) -> None:
        self.said.append(text)
        self.on_say()

    def begin(self, label: str, total: int, done: int) -> None:
        self.begun.append((label, total, done))

    def advance(self, count: int) -> None:
        self.moved += count

    def finish(self) -> None:
        return
