"""Follows the registry's endpoints, aliases and versions, resuming after the last revision it has read."""

import grpc
from inferplane.registry.v1 import endpoint_pb2, model_pb2, watch_service_pb2
from inferplane.registry.v1.watch_service_pb2_grpc import WatchServiceStub

from services.router.adapters.watch import Progress, keep_up
from services.router.domain.catalog import (
    AliasChange,
    CatalogChange,
    CatalogUpdate,
    EndpointChange,
    VersionChange,
)
from services.router.domain.topology import CircuitLimits, Endpoint, Mirror, RetryPolicy, Target
from services.router.ports.feeds import CatalogSink
from services.rpc import names

# Of versions only whether they keep state or write text; placements don't change what is routed: workers say what
# is READY.
_KINDS = (
    watch_service_pb2.RESOURCE_KIND_MODEL_VERSION,
    watch_service_pb2.RESOURCE_KIND_ENDPOINT,
    watch_service_pb2.RESOURCE_KIND_ALIAS,
)
_TIMEOUT_SECONDS = 60.0  # where an endpoint declares none
_DEFAULTS = CircuitLimits()
_LANGUAGE = (model_pb2.FORMAT_GGUF, model_pb2.FORMAT_SAFETENSORS)


class RegistryWatch:
    """Feeds a sink from `WatchService.Watch`."""

    def __init__(self, channel: grpc.aio.Channel, sink: CatalogSink) -> None:
        self._stub = WatchServiceStub(channel)
        self._sink = sink
        self._revision = 0

    async def run(self) -> None:
        """Follow for ever."""
        await keep_up("registry", self._follow, self._sink.lose_registry)

    async def _follow(self, progress: Progress) -> None:
        request = watch_service_pb2.WatchRequest(after_revision=self._revision, kinds=_KINDS)
        restart = self._revision == 0
        try:
            async for message in self._stub.Watch(request):
                progress.heard = True
                self._sink.hear_registry(
                    CatalogUpdate(
                        changes=tuple(_change(change) for change in message.changes),
                        synced=message.synced,
                        restart=restart,
                    )
                )
                restart = False
                if message.synced:
                    self._revision = message.revision
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.OUT_OF_RANGE or restart:
                raise
            # The revision is no longer kept, or the store is another one: all from the beginning.
            self._revision = 0
            progress.heard = True


def _change(change: watch_service_pb2.Change) -> CatalogChange:
    if change.kind == watch_service_pb2.RESOURCE_KIND_ALIAS:
        alias = names.parse_alias("name", change.name)
        return AliasChange(alias, _alias(change.alias) if change.HasField("alias") else None)
    if change.kind == watch_service_pb2.RESOURCE_KIND_MODEL_VERSION:
        version = names.parse_version("name", change.name)
        of = change.model_version
        return VersionChange(version, of.settings.HasField("sequence"), of.format in _LANGUAGE)
    endpoint = names.parse_endpoint("name", change.name)
    value = _endpoint(change.endpoint) if change.HasField("endpoint") else None
    return EndpointChange(endpoint, value)


def _alias(alias: model_pb2.Alias) -> names.VersionName:
    return names.parse_version("version", alias.version)


def _endpoint(message: endpoint_pb2.Endpoint) -> Endpoint:
    mirror = None
    if message.HasField("mirror"):
        target = names.parse_target("mirror.target", message.mirror.target)
        mirror = Mirror(target, message.mirror.percent)
    limits = message.circuit_limits
    timeout = message.timeout.ToNanoseconds() / 1e9
    return Endpoint(
        name=names.parse_endpoint("name", message.name),
        targets=tuple(
            Target(names.parse_target("targets.target", target.target), target.weight)
            for target in message.targets
        ),
        sticky_header=message.sticky_header.lower(),
        mirror=mirror,
        retry=_retry(message.retry_policy),
        timeout=timeout or _TIMEOUT_SECONDS,
        limits=CircuitLimits(
            max_requests=limits.max_requests or _DEFAULTS.max_requests,
            max_mirror_requests=limits.max_mirror_requests or _DEFAULTS.max_mirror_requests,
        ),
    )


def _retry(message: endpoint_pb2.RetryPolicy) -> RetryPolicy:
    default = RetryPolicy()
    has = message.HasField
    return RetryPolicy(
        num_retries=message.num_retries if has("num_retries") else default.num_retries,
        budget_percent=message.budget_percent if has("budget_percent") else default.budget_percent,
        min_retry_concurrency=(
            message.min_retry_concurrency
            if has("min_retry_concurrency")
            else default.min_retry_concurrency
        ),
    )
