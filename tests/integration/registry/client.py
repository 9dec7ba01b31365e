"""A client of the registry for tests: stubs on one channel, and the steps that many tests take."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from inferplane.discovery.v1 import discovery_service_pb2_grpc
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
    watch_service_pb2_grpc,
)

from services.rpc.channel import connect
from services.rpc.interceptor import DETAILS_KEY
from services.rpc.tls import Security
from tests.models import good

MODEL = good.add()


def file_of(path: str, content: bytes) -> model_pb2.ArtifactFile:
    return model_pb2.ArtifactFile(
        path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


def start(name: str, path: str, offset: int = 0) -> artifact_service_pb2.UploadArtifactRequest:
    return artifact_service_pb2.UploadArtifactRequest(
        start=artifact_service_pb2.UploadArtifactRequest.Start(name=name, path=path, offset=offset)
    )


def chunk(content: bytes) -> artifact_service_pb2.UploadArtifactRequest:
    return artifact_service_pb2.UploadArtifactRequest(chunk=content)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a program reads it."""

    code: grpc.StatusCode
    message: str
    reason: str
    metadata: Mapping[str, str]
    fields: tuple[str, ...]
    retry: bool


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """The error with its details; exactly one ErrorInfo of our domain must be there."""
    trailer = dict(error.trailing_metadata() or ())[DETAILS_KEY]
    assert isinstance(trailer, bytes)
    status = status_pb2.Status.FromString(trailer)
    infos, fields, retry = [], [], False
    for detail in status.details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            infos.append(info)
        elif detail.Unpack(bad):
            fields = [violation.field for violation in bad.field_violations]
        else:
            retry = detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)
    (only,) = infos
    assert only.domain == "inferplane"
    assert status.message == error.details()
    return Refusal(
        code=error.code(),
        message=status.message,
        reason=only.reason,
        metadata=dict(only.metadata),
        fields=tuple(fields),
        retry=retry,
    )


async def refused(call: Awaitable[object]) -> Refusal:
    """The refusal of a call that must not succeed."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"not refused, but answered {answer}")


async def read(call: Any) -> Any:
    """The next response of a stream; grpc's stubs mix the end of a stream into its type."""
    async with asyncio.timeout(60):
        response = await call.read()
    assert response is not grpc.aio.EOF
    return response


class Client:
    """All of the registry's services at one address."""

    def __init__(self, address: str, security: Security | None = None) -> None:
        self.channel = connect(address, security=security)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        self.artifacts = artifact_service_pb2_grpc.ArtifactServiceStub(self.channel)
        self.endpoints = endpoint_service_pb2_grpc.EndpointServiceStub(self.channel)
        self.placements = placement_service_pb2_grpc.PlacementServiceStub(self.channel)
        self.watches = watch_service_pb2_grpc.WatchServiceStub(self.channel)
        self.discovery = discovery_service_pb2_grpc.DiscoveryServiceStub(self.channel)

    async def declare(self, version: str, **files: bytes) -> model_pb2.ModelVersion:
        """Declare `model@version` with files by path (`__` for `.`)."""
        model, _, version_id = version.partition("@")
        response = await self.models.CreateModelVersion(
            model_service_pb2.CreateModelVersionRequest(
                parent=f"models/{model}",
                version_id=version_id,
                model_version=model_pb2.ModelVersion(
                    format=model_pb2.FORMAT_ONNX,
                    files=[file_of(p.replace("__", "."), c) for p, c in files.items()],
                ),
            )
        )
        return response.model_version

    async def upload(
        self, name: str, path: str, content: bytes, offset: int = 0
    ) -> artifact_service_pb2.UploadArtifactResponse:
        """Upload a file from an offset on, in pieces of 1 MiB."""

        async def messages() -> AsyncIterator[artifact_service_pb2.UploadArtifactRequest]:
            yield start(name, path, offset)
            for at in range(offset, len(content), 1 << 20):
                yield chunk(content[at : at + (1 << 20)])

        return await self.artifacts.UploadArtifact(messages())

    async def stored(self, name: str) -> dict[str, int]:
        """Stored bytes by path."""
        request = artifact_service_pb2.GetUploadRequest(name=name)
        answer = await self.artifacts.GetUpload(request)
        return {file.path: file.stored_bytes for file in answer.files}

    async def arrived(self, name: str, path: str, count: int) -> None:
        """Wait until the registry has stored so many bytes; each call asks it again."""
        async with asyncio.timeout(60):
            while (await self.stored(name))[path] < count:
                continue

    async def resume(
        self, name: str, path: str, content: bytes, offset: int
    ) -> artifact_service_pb2.UploadArtifactResponse:
        """Upload the rest, again while the registry has not seen the end of the stream before."""
        while True:
            try:
                return await self.upload(name, path, content, offset)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.ABORTED:
                    raise

    async def download(self, name: str, path: str, offset: int = 0) -> bytes:
        """A file from an offset on."""
        request = artifact_service_pb2.DownloadArtifactRequest(name=name, path=path, offset=offset)
        return b"".join([r.chunk async for r in self.artifacts.DownloadArtifact(request)])

    async def finish(self, name: str) -> model_pb2.ModelVersion:
        request = model_service_pb2.FinishModelVersionRequest(name=name)
        return (await self.models.FinishModelVersion(request)).model_version

    async def push(self, version: str, content: bytes = MODEL, **others: bytes) -> str:
        """Declare, upload and finish a version with one model file; returns its name."""
        files = {"model__onnx": content, **others}
        name = (await self.declare(version, **files)).name
        stored = await self.stored(name)
        for short, data in files.items():
            path = short.replace("__", ".")
            await self.upload(name, path, data, stored[path])
        await self.finish(name)
        return name

    async def place(self, version: str, pool: str = "default") -> placement_pb2.Placement:
        """Place a version by its resource name."""
        request = placement_service_pb2.CreatePlacementRequest(
            parent=f"pools/{pool}", placement=placement_pb2.Placement(version=version)
        )
        return (await self.placements.CreatePlacement(request)).placement

    async def expose(self, endpoint_id: str, **weights: float) -> endpoint_pb2.Endpoint:
        """Create an endpoint with targets `model__version=weight`, or `model__alias__x` for aliases."""
        request = endpoint_service_pb2.CreateEndpointRequest(
            endpoint_id=endpoint_id, endpoint=policy(**weights)
        )
        return (await self.endpoints.CreateEndpoint(request)).endpoint

    async def alias(self, model: str, alias_id: str, version_id: str) -> model_pb2.Alias:
        request = model_service_pb2.SetAliasRequest(
            alias=model_pb2.Alias(
                name=f"models/{model}/aliases/{alias_id}",
                version=f"models/{model}/versions/{version_id}",
            )
        )
        return (await self.models.SetAlias(request)).alias


def policy(**weights: float) -> endpoint_pb2.Endpoint:
    """A traffic policy with targets as `Client.expose` writes them."""
    targets = []
    for short, weight in weights.items():
        model, _, rest = short.partition("__")
        kind = "aliases" if rest.startswith("alias__") else "versions"
        name = f"models/{model}/{kind}/{rest.removeprefix('alias__')}"
        targets.append(endpoint_pb2.Target(target=name, weight=weight))
    return endpoint_pb2.Endpoint(targets=targets)
