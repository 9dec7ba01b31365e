"""`inferplane.registry.v1.ArtifactService`: the bytes of versions."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from inferplane.registry.v1 import artifact_service_pb2 as pb
from inferplane.registry.v1.artifact_service_pb2_grpc import ArtifactServiceServicer

from services.registry.drivers.uploads import FileOffset, Uploads
from services.rpc import names
from services.rpc.errors import InvalidArgumentError

_Context = grpc.aio.ServicerContext[Any, Any]


class ArtifactService(ArtifactServiceServicer):
    """Carries chunks between streams and the use cases."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    async def GetUpload(
        self, request: pb.GetUploadRequest, context: _Context
    ) -> pb.GetUploadResponse:
        files = await self._uploads.stored(names.parse_version("name", request.name))
        return pb.GetUploadResponse(
            files=[
                pb.GetUploadResponse.StoredFile(path=file.path, stored_bytes=file.stored_bytes)
                for file in files
            ]
        )

    async def UploadArtifact(
        self, request_iterator: AsyncIterator[pb.UploadArtifactRequest], context: _Context
    ) -> pb.UploadArtifactResponse:
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("message") != "start":
            given = "nothing" if first is None else first.WhichOneof("message") or "nothing"
            raise InvalidArgumentError.of_field(
                "start", f"the stream begins with {given}; allowed: start, then chunks"
            )
        start = FileOffset(
            version=names.parse_version("start.name", first.start.name),
            path=first.start.path,
            offset=first.start.offset,
        )
        stored = await self._uploads.receive(start, _chunks(request_iterator))
        return pb.UploadArtifactResponse(stored_bytes=stored.stored_bytes, complete=stored.complete)

    async def DownloadArtifact(
        self, request: pb.DownloadArtifactRequest, context: _Context
    ) -> AsyncIterator[pb.DownloadArtifactResponse]:
        start = FileOffset(
            version=names.parse_version("name", request.name),
            path=request.path,
            offset=request.offset,
        )
        async for chunk in self._uploads.send(start):
            yield pb.DownloadArtifactResponse(chunk=chunk)


async def _chunks(requests: AsyncIterator[pb.UploadArtifactRequest]) -> AsyncIterator[bytes]:
    async for request in requests:
        if request.WhichOneof("message") != "chunk":
            raise InvalidArgumentError.of_field(
                "chunk", "a message without chunk follows start; allowed: chunks only"
            )
        yield request.chunk
