"""Waiting until what was changed is routed: published by the router and acknowledged by its Envoys."""

import asyncio

import grpc
import tenacity
from inferplane.registry.v1 import endpoint_pb2
from inferplane.router.v1 import router_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge
from services.cli.ports.report import Report

_SECONDS = 5.0  # usually it takes milliseconds
_LOOK_EVERY = 0.02


class _NotYetError(Exception):
    """The router or an Envoy is not there yet."""


async def wait_routed(edge: Edge, endpoint: endpoint_pb2.Endpoint, report: Report) -> None:
    """Return once calls go where the endpoint says; after some seconds say that they don't yet."""
    status = router_service_pb2.GetStatusResponse()
    try:
        async with asyncio.timeout(_SECONDS):
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type((grpc.aio.AioRpcError, _NotYetError)),
                wait=tenacity.wait_fixed(_LOOK_EVERY),
            ):
                with attempt:
                    request = router_service_pb2.GetStatusRequest()
                    status = await edge.router.GetStatus(request, timeout=CALL_SECONDS)
                    if not is_routed(status, endpoint):
                        raise _NotYetError
    except TimeoutError:
        report.say(_why(status))


def is_routed(
    status: router_service_pb2.GetStatusResponse, endpoint: endpoint_pb2.Endpoint
) -> bool:
    """Whether the published routes are those of the endpoint, and every Envoy has them."""
    if not status.envoys or not all(envoy.in_sync for envoy in status.envoys):
        return False
    total = sum(target.weight for target in endpoint.targets)
    wanted = [(target.target, target.weight / total) for target in endpoint.targets]
    for routed in status.endpoints:
        if routed.name == endpoint.name:
            shares = sorted((target.target, target.declared_share) for target in routed.targets)
            return len(shares) == len(wanted) and all(
                name == wanted_name and abs(share - wanted_share) < 1e-6
                for (name, share), (wanted_name, wanted_share) in zip(
                    shares, sorted(wanted), strict=True
                )
            )
    return False


def _why(status: router_service_pb2.GetStatusResponse) -> str:
    if status.refused_snapshot:
        return f"stored, but the router can't publish it: {status.refused_snapshot}"
    for envoy in status.envoys:
        if not envoy.in_sync and envoy.HasField("last_nack"):
            return f"stored, but Envoy {envoy.node_id} refuses it: {envoy.last_nack.message}"
    return f"stored, but not routed after {_SECONDS:g} s; inferplane status tells more"
