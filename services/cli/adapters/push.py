"""Pushing a version: declared, uploaded, finished; taken up again if it was begun before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
from inferplane.registry.v1 import model_pb2, model_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, FINISH_SECONDS, Edge, pages
from services.cli.adapters.local_file import LocalFile
from services.cli.adapters.transfer import upload
from services.cli.domain.reference import next_version
from services.cli.ports.report import Report
from services.rpc import names
from services.rpc.names import ModelName, VersionName

_PAGE = 1000
_TRIES = 5  # others may push to the same model at the same time
_LOST_RACE = frozenset({grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOrder:
    """What is to be pushed."""

    model: str
    version: str | None  # None: the next whole number
    description: str | None
    tags: Mapping[str, str]  # of the model, added to what it has
    lineage: Mapping[str, str]
    settings: model_pb2.VersionSettings
    format: model_pb2.Format.ValueType = model_pb2.FORMAT_ONNX


async def push(
    edge: Edge, order: PushOrder, files: Sequence[LocalFile], report: Report
) -> model_pb2.ModelVersion:
    """Make a READY version of `files`; doing it again changes nothing and takes up what was left."""
    version = await _declare(edge, order, files)
    name = names.parse_version("name", version.name)
    if version.state == model_pb2.VERSION_STATE_READY:
        report.say(f"{name.short} is there already, with the same files")
    else:
        version = await _complete(edge, version, files, report)
    if order.description is not None or order.tags:
        await _describe(edge, order)
    return version


async def _complete(
    edge: Edge, declared: model_pb2.ModelVersion, files: Sequence[LocalFile], report: Report
) -> model_pb2.ModelVersion:
    """Upload and finish; that another push of the same was quicker is success too."""
    try:
        await upload(edge, declared.name, files, report)
        finish = model_service_pb2.FinishModelVersionRequest(name=declared.name)
        finished = await edge.models.FinishModelVersion(finish, timeout=FINISH_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            await _say_what_stays(edge, declared.name, report)
        if error.code() not in _LOST_RACE:
            raise
        there = await get_version(edge, names.parse_version("name", declared.name))
        if not _is_made(there, declared):
            raise
        return there
    return finished.model_version


async def _say_what_stays(edge: Edge, name: str, report: Report) -> None:
    """A version whose settings don't fit its model stays, unlike one whose model is none."""
    version = names.parse_version("name", name)
    if any(there.name == name for there in await list_versions(edge, version.model)):
        report.say(
            f"what was sent is kept for a while; with other settings:"
            f" inferplane models push {version.short} PATH --settings FILE"
        )


async def _declare(
    edge: Edge, order: PushOrder, files: Sequence[LocalFile]
) -> model_pb2.ModelVersion:
    """The version that these files belong to, created if need be."""
    wanted = model_pb2.ModelVersion(
        format=order.format,
        files=[
            model_pb2.ArtifactFile(path=f.path, size_bytes=f.size, sha256=f.sha256) for f in files
        ],
        settings=order.settings,
        lineage=order.lineage,
    )
    if order.version is not None:
        return await _create(edge, VersionName(order.model, order.version), wanted)
    for attempt in range(1, _TRIES + 1):
        there = await list_versions(edge, order.model)
        begun = [v for v in there if v.state == model_pb2.VERSION_STATE_UPLOADING or v is there[-1]]
        for version in reversed(begun):
            if _same(version, wanted) and version.settings == wanted.settings:
                return version
        number = next_version(names.parse_version("name", v.name).version for v in there)
        try:
            return await _create(edge, VersionName(order.model, number), wanted)
        except grpc.aio.AioRpcError as error:
            taken = error.code() is grpc.StatusCode.ALREADY_EXISTS
            if not taken or attempt == _TRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _create(
    edge: Edge, name: VersionName, wanted: model_pb2.ModelVersion
) -> model_pb2.ModelVersion:
    request = model_service_pb2.CreateModelVersionRequest(
        parent=str(name.parent), version_id=name.version, model_version=wanted
    )
    try:
        response = await edge.models.CreateModelVersion(request, timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise
        there = await get_version(edge, name)
        if not _is_made(there, wanted):
            raise
        return there
    return response.model_version


def _is_made(there: model_pb2.ModelVersion, wanted: model_pb2.ModelVersion) -> bool:
    """Whether what is there is READY and just what is wanted."""
    is_ready = there.state == model_pb2.VERSION_STATE_READY
    return is_ready and _same(there, wanted) and there.settings == wanted.settings


def _same(there: model_pb2.ModelVersion, wanted: model_pb2.ModelVersion) -> bool:
    def listed(version: model_pb2.ModelVersion) -> list[tuple[str, int, str]]:
        return sorted((f.path, f.size_bytes, f.sha256) for f in version.files)

    return listed(there) == listed(wanted)


async def _describe(edge: Edge, order: PushOrder) -> None:
    """Write description and tags onto the model; the etag keeps what others write meanwhile."""
    get = model_service_pb2.GetModelRequest(name=str(ModelName(order.model)))
    for attempt in range(1, _TRIES + 1):
        model = (await edge.models.GetModel(get, timeout=CALL_SECONDS)).model
        if order.description is not None:
            model.description = order.description
        model.tags.update(order.tags)
        update = model_service_pb2.UpdateModelRequest(model=model)
        try:
            await edge.models.UpdateModel(update, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ABORTED or attempt == _TRIES:
                raise
        else:
            return


async def get_version(edge: Edge, name: VersionName) -> model_pb2.ModelVersion:
    """One version."""
    request = model_service_pb2.GetModelVersionRequest(name=str(name))
    response = await edge.models.GetModelVersion(request, timeout=CALL_SECONDS)
    return response.model_version


async def list_versions(edge: Edge, model: str) -> list[model_pb2.ModelVersion]:
    """All versions of a model (`-`: of all models), oldest first; none if the model does not exist."""

    def page(
        token: str,
    ) -> grpc.aio.UnaryUnaryCall[
        model_service_pb2.ListModelVersionsRequest, model_service_pb2.ListModelVersionsResponse
    ]:
        return edge.models.ListModelVersions(
            model_service_pb2.ListModelVersionsRequest(
                parent=f"models/{model}", page_size=_PAGE, page_token=token
            ),
            timeout=CALL_SECONDS,
        )

    try:
        return await pages(page, lambda response: list(response.model_versions))
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return []
        raise
