"""`inferplane.registry.v1.WatchService`: changes as they happen, resumable."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import grpc
from inferplane.registry.v1 import watch_service_pb2 as pb
from inferplane.registry.v1.watch_service_pb2_grpc import WatchServiceServicer

from services.registry.domain.catalog import ALL_KINDS, Change, ChangeSet, ResourceKind
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import Alias, Model, ModelVersion
from services.registry.domain.placement import Placement
from services.registry.drivers.watch import Watches, Watching
from services.registry.servicers.endpoint_messages import endpoint_message
from services.registry.servicers.model_messages import alias_message, model_message, version_message
from services.registry.servicers.placement_messages import placement_message
from services.rpc.errors import InvalidArgumentError

_Context = grpc.aio.ServicerContext[Any, Any]

_KINDS: Mapping[ResourceKind, pb.ResourceKind.ValueType] = {
    ResourceKind.MODEL: pb.RESOURCE_KIND_MODEL,
    ResourceKind.MODEL_VERSION: pb.RESOURCE_KIND_MODEL_VERSION,
    ResourceKind.ALIAS: pb.RESOURCE_KIND_ALIAS,
    ResourceKind.ENDPOINT: pb.RESOURCE_KIND_ENDPOINT,
    ResourceKind.PLACEMENT: pb.RESOURCE_KIND_PLACEMENT,
}
_KINDS_READ = {value: key for key, value in _KINDS.items()}
RESPONSE_BYTES = 1024 * 1024  # a response is closed once it has this many


class WatchService(WatchServiceServicer):
    """Carries change sets to readers, in responses of bounded size."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches

    async def Watch(
        self, request: pb.WatchRequest, context: _Context
    ) -> AsyncIterator[pb.WatchResponse]:
        watching = Watching(request.after_revision, _read_kinds(request.kinds))
        async for news in self._watches.follow(watching):
            for response in responses(news):
                yield response


def _read_kinds(values: Sequence[pb.ResourceKind.ValueType]) -> frozenset[ResourceKind]:
    for index, value in enumerate(values):
        if value not in _KINDS_READ:
            allowed = ", ".join(pb.ResourceKind.Name(kind) for kind in _KINDS.values())
            raise InvalidArgumentError.of_field(f"kinds[{index}]", f"{value}; allowed: {allowed}")
    return frozenset(_KINDS_READ[value] for value in values) or ALL_KINDS


def responses(news: ChangeSet) -> Iterator[pb.WatchResponse]:
    """A change set in responses of bounded size; only the last one is `synced`: half a set is no consistent state."""
    response = pb.WatchResponse(revision=news.revision)
    size = 0
    for change in news.changes:
        if size >= RESPONSE_BYTES:
            yield response
            response, size = pb.WatchResponse(revision=news.revision), 0
        message = change_message(change)
        size += message.ByteSize()
        response.changes.append(message)
    response.synced = True
    yield response


def change_message(change: Change) -> pb.Change:
    """One change as a message."""
    message = pb.Change(name=change.name, kind=_KINDS[change.kind])
    match change.record:
        case Model():
            message.model.CopyFrom(model_message(change.record))
        case ModelVersion():
            message.model_version.CopyFrom(version_message(change.record))
        case Alias():
            message.alias.CopyFrom(alias_message(change.record))
        case Endpoint():
            message.endpoint.CopyFrom(endpoint_message(change.record))
        case Placement():
            message.placement.CopyFrom(placement_message(change.record))
        case None:
            pass
    return message
