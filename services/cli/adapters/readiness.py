"""Waits until services answer: by their own health, and through the edge as any client would."""

import asyncio
from collections.abc import Callable

import grpc
import tenacity
from grpc_health.v1 import health_pb2, health_pb2_grpc
from inferplane.discovery.v1 import discovery_service_pb2, discovery_service_pb2_grpc
from inferplane.registry.v1 import endpoint_service_pb2, endpoint_service_pb2_grpc
from inferplane.router.v1 import router_service_pb2, router_service_pb2_grpc

from services.cli.adapters.keyed_channel import KeyedChannel, Pairs
from services.rpc.address import Address

_QUICK_RECONNECT = [
    # A service that starts is ready any moment; grpc's own back-off would add up to seconds.
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
]
_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNIMPLEMENTED,  # Envoy before its first routes
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
)


_REFUSALS = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_MOST_REFUSALS = 100  # with the wait between attempts at least five seconds of them


class KeyRefusedError(Exception):
    """The edge answers, but lets this key not in."""


class _NotYetError(Exception):
    """An answer came, and it is not yet the one that is waited for."""


def _passes(error: BaseException) -> bool:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in _PASSING
    return isinstance(error, _NotYetError)


def _attempts(
    passes: Callable[[BaseException], bool] = _passes,
) -> tenacity.AsyncRetrying:
    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(passes), wait=tenacity.wait_fixed(0.05), reraise=True
    )


async def wait_serving(address: str) -> None:
    """Return once the gRPC server at `address` reports SERVING."""
    async with grpc.aio.insecure_channel(address, options=_QUICK_RECONNECT) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        async for attempt in _attempts():
            with attempt:
                watch = stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
                async for response in watch:
                    if response.status == health_pb2.HealthCheckResponse.SERVING:
                        watch.cancel()
                        return
                raise _NotYetError


async def wait_edge(address: str, workers: int, key: Pairs = ()) -> None:
    """Return once the registry answers through the edge and so many workers are alive.

    Calls carry `key`. KeyRefusedError if the edge goes on refusing it: then it answers, and not to this key.
    """
    async with grpc.aio.insecure_channel(address, options=_QUICK_RECONNECT) as plain:
        channel = KeyedChannel(plain, key)
        endpoints = endpoint_service_pb2_grpc.EndpointServiceStub(channel)
        discovery = discovery_service_pb2_grpc.DiscoveryServiceStub(channel)
        patience = _Patience()
        async for attempt in _attempts(patience.passes):
            with attempt:
                await endpoints.ListEndpoints(
                    endpoint_service_pb2.ListEndpointsRequest(page_size=1),
                    timeout=2,
                    wait_for_ready=True,
                )
        async for attempt in _attempts(patience.passes):
            with attempt:
                await _wait_workers(discovery, workers)


async def wait_behind(registry: str, router: str, workers: int, *, asks_for_keys: bool) -> None:
    """The same where the edge speaks TLS, of which nothing is known here: asked of those behind it.

    Return once an Envoy has taken all that the router has for it, who may call included, and so many workers are alive.
    """
    await wait_serving(registry)
    async with (
        grpc.aio.insecure_channel(registry, options=_QUICK_RECONNECT) as behind,
        grpc.aio.insecure_channel(router, options=_QUICK_RECONNECT) as steering,
    ):
        discovery = discovery_service_pb2_grpc.DiscoveryServiceStub(behind)
        async for attempt in _attempts():
            with attempt:
                await _wait_workers(discovery, workers)
        stub = router_service_pb2_grpc.RouterServiceStub(steering)
        async for attempt in _attempts():
            with attempt:
                status = await stub.GetStatus(router_service_pb2.GetStatusRequest(), timeout=2)
                is_told = status.policy_known or not asks_for_keys
                if not (is_told and any(envoy.in_sync for envoy in status.envoys)):
                    raise _NotYetError


async def wait_listening(edge: Address) -> None:
    """Return once somebody takes connections there. Envoy begins to when it knows which services are well."""
    async for attempt in _attempts(lambda error: isinstance(error, OSError)):
        with attempt:
            if edge.path is not None:
                _, writer = await asyncio.open_unix_connection(edge.path)
            else:
                # The address of all addresses is this machine, too (ip(7)).
                _, writer = await asyncio.open_connection(edge.host, edge.port)
            writer.close()


class _Patience:
    """An edge that has just started may not know the key yet; one that goes on refusing it never will."""

    def __init__(self) -> None:
        self._refusals = 0

    def passes(self, error: BaseException) -> bool:
        if not isinstance(error, grpc.aio.AioRpcError) or error.code() not in _REFUSALS:
            return _passes(error)
        self._refusals += 1
        if self._refusals > _MOST_REFUSALS:
            raise KeyRefusedError from error
        return True


async def _wait_workers(
    discovery: "discovery_service_pb2_grpc.DiscoveryServiceAsyncStub", workers: int
) -> None:
    watch = discovery.WatchWorkers(discovery_service_pb2.WatchWorkersRequest())
    async for response in watch:
        if len(response.workers) >= workers:
            watch.cancel()
            return
    raise _NotYetError
