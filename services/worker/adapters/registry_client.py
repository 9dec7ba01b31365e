"""The registry behind its generated clients: assignments by Watch, files by DownloadArtifact."""

from collections.abc import AsyncIterator

import grpc
from inferplane.registry.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    model_pb2,
    watch_service_pb2,
    watch_service_pb2_grpc,
)

from services.rpc import names
from services.rpc.names import VersionName
from services.worker.adapters.run_settings import run_settings, tuning
from services.worker.domain.assignment import (
    ArtifactFile,
    Change,
    ChangeBatch,
    PlacementChange,
    VersionChange,
    VersionSpec,
)
from services.worker.domain.datatype import BY_NAME
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import Signature, spec_of
from services.worker.ports.registry import ConnectionLostError, RevisionUnavailableError

_KINDS = [
    watch_service_pb2.RESOURCE_KIND_PLACEMENT,
    watch_service_pb2.RESOURCE_KIND_MODEL_VERSION,
]

_LANGUAGE_FORMATS = {model_pb2.FORMAT_GGUF, model_pb2.FORMAT_SAFETENSORS}

# Answers that will be the same tomorrow; everything else may pass.
_HOPELESS = {
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNIMPLEMENTED,
}


class RegistryAssignments:
    """AssignmentSource over WatchService."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = watch_service_pb2_grpc.WatchServiceStub(channel)

    async def watch(self, after_revision: int) -> AsyncIterator[ChangeBatch]:
        """Changes after a revision; 0: first everything as it is."""
        request = watch_service_pb2.WatchRequest(after_revision=after_revision, kinds=_KINDS)
        try:
            async for response in self._stub.Watch(request):
                yield ChangeBatch(
                    [_change(change) for change in response.changes],
                    response.revision,
                    response.synced,
                )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                raise RevisionUnavailableError(error.details()) from error
            raise ConnectionLostError(_text(error)) from error
        raise ConnectionLostError("the registry ended the stream")


class RegistryFiles:
    """FileSource over ArtifactService."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = artifact_service_pb2_grpc.ArtifactServiceStub(channel)

    async def download(self, version: VersionName, path: str, offset: int) -> AsyncIterator[bytes]:
        """Chunks from `offset` to the end."""
        request = artifact_service_pb2.DownloadArtifactRequest(
            name=str(version), path=path, offset=offset
        )
        try:
            async for response in self._stub.DownloadArtifact(request):
                yield response.chunk
        except grpc.aio.AioRpcError as error:
            if error.code() in _HOPELESS:
                raise LoadError(f"the registry refuses file {path!r}: {_text(error)}") from error
            raise ConnectionLostError(_text(error)) from error


def _text(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"


def _change(change: watch_service_pb2.Change) -> Change:
    if change.kind == watch_service_pb2.RESOURCE_KIND_PLACEMENT:
        incarnation = None
        if change.HasField("placement"):
            incarnation = f"{change.placement.create_time.ToNanoseconds()}"
        return PlacementChange(names.parse_placement("name", change.name), incarnation)
    name = names.parse_version("name", change.name)
    # A version that is still being uploaded has no signature; it cannot be placed either.
    is_there = (
        change.HasField("model_version")
        and change.model_version.state == model_pb2.VERSION_STATE_READY
    )
    return VersionChange(name, _spec(name, change.model_version) if is_there else None)


def _spec(name: VersionName, version: model_pb2.ModelVersion) -> VersionSpec:
    unknown = sorted({t.datatype for t in (*version.inputs, *version.outputs)} - BY_NAME.keys())
    unsupported = ""
    is_language = version.format in _LANGUAGE_FORMATS
    if not is_language and version.format != model_pb2.FORMAT_ONNX:
        unsupported = f"format {model_pb2.Format.Name(version.format)} is not served by this worker"
    elif unknown:
        unsupported = f"datatypes {', '.join(unknown)} are not served by this worker"
    signature = Signature((), ())
    if not unsupported:
        signature = Signature(
            tuple(spec_of(t.name, t.datatype, tuple(t.shape)) for t in version.inputs),
            tuple(spec_of(t.name, t.datatype, tuple(t.shape)) for t in version.outputs),
        )
    return VersionSpec(
        name=name,
        digest=version.digest,
        files=tuple(ArtifactFile(f.path, f.size_bytes, f.sha256) for f in version.files),
        signature=signature,
        settings=run_settings(version),
        created_ns=version.create_time.ToNanoseconds(),
        tuning=tuning(version),
        unsupported=unsupported,
        is_language=is_language,
    )
