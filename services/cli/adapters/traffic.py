"""Changes to the traffic split of endpoints, safe against others who change them at the same time."""

from collections.abc import Awaitable, Callable, Sequence

import grpc
from inferplane.registry.v1 import endpoint_pb2, endpoint_service_pb2, model_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.cli.domain.exit_code import UsageError
from services.cli.domain.reference import WeightedReference, model_of_targets
from services.cli.domain.split import Share, with_share
from services.rpc import names
from services.rpc.errors import NotFoundError
from services.rpc.names import AliasName, EndpointName, ModelName, VersionName

_TRIES = 5  # reads again after somebody else's change
_PAGE = 1000

Change = Callable[[endpoint_pb2.Endpoint], Awaitable[Sequence[endpoint_pb2.Target]]]


async def get_endpoint(edge: Edge, endpoint: str) -> endpoint_pb2.Endpoint:
    """One endpoint."""
    request = endpoint_service_pb2.GetEndpointRequest(name=str(EndpointName(endpoint)))
    response = await edge.endpoints.GetEndpoint(request, timeout=CALL_SECONDS)
    return response.endpoint


async def find_endpoint(edge: Edge, endpoint: str) -> endpoint_pb2.Endpoint | None:
    """One endpoint, None if there is none."""
    try:
        return await get_endpoint(edge, endpoint)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise


async def list_endpoints(edge: Edge) -> list[endpoint_pb2.Endpoint]:
    """All endpoints, by name."""

    def page(
        token: str,
    ) -> grpc.aio.UnaryUnaryCall[
        endpoint_service_pb2.ListEndpointsRequest, endpoint_service_pb2.ListEndpointsResponse
    ]:
        return edge.endpoints.ListEndpoints(
            endpoint_service_pb2.ListEndpointsRequest(page_size=_PAGE, page_token=token),
            timeout=CALL_SECONDS,
        )

    return await pages(page, lambda response: list(response.endpoints))


async def change_targets(edge: Edge, endpoint: str, change: Change) -> endpoint_pb2.Endpoint:
    """Replace the targets by what `change` makes of the endpoint as it is; everything else stays."""
    for attempt in range(1, _TRIES + 1):
        there = await get_endpoint(edge, endpoint)
        targets = await change(there)
        request = endpoint_service_pb2.UpdateEndpointRequest(
            endpoint=endpoint_pb2.Endpoint(name=there.name, etag=there.etag, targets=targets),
        )
        request.update_mask.paths.append("targets")
        try:
            response = await edge.endpoints.UpdateEndpoint(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ABORTED or attempt == _TRIES:
                raise
        else:
            return response.endpoint
    raise AssertionError("the last attempt returns or raises")


async def give_share(
    edge: Edge, endpoint: str, version: VersionName, percent: float
) -> endpoint_pb2.Endpoint:
    """Give the version so much of the endpoint's traffic; the others keep their proportions in the rest."""

    async def change(there: endpoint_pb2.Endpoint) -> Sequence[endpoint_pb2.Target]:
        shares = [
            Share(target.target, target.weight, await _version_of(edge, target.target))
            for target in there.targets
        ]
        return [
            endpoint_pb2.Target(target=share.target, weight=share.weight)
            for share in with_share(shares, str(version), percent)
        ]

    return await change_targets(edge, endpoint, change)


async def set_split(
    edge: Edge, endpoint: str, split: Sequence[WeightedReference]
) -> endpoint_pb2.Endpoint:
    """Replace the endpoint's split by exactly this one."""

    async def change(there: endpoint_pb2.Endpoint) -> Sequence[endpoint_pb2.Target]:
        default = model_of_targets(target.target for target in there.targets)
        return [
            endpoint_pb2.Target(
                target=await _resolve(edge, part, default, endpoint), weight=part.weight
            )
            for part in split
        ]

    return await change_targets(edge, endpoint, change)


async def create_endpoint(edge: Edge, endpoint: str, version: VersionName) -> endpoint_pb2.Endpoint:
    """A new endpoint whose traffic all goes to the version."""
    request = endpoint_service_pb2.CreateEndpointRequest(
        endpoint_id=endpoint,
        endpoint=endpoint_pb2.Endpoint(
            targets=[endpoint_pb2.Target(target=str(version), weight=100)]
        ),
    )
    response = await edge.endpoints.CreateEndpoint(request, timeout=CALL_SECONDS)
    return response.endpoint


async def _version_of(edge: Edge, target: str) -> str:
    """The version that a target stands for now."""
    if isinstance(names.parse_target("target", target), VersionName):
        return target
    request = model_service_pb2.GetAliasRequest(name=target)
    response = await edge.models.GetAlias(request, timeout=CALL_SECONDS)
    return response.alias.version


async def _resolve(
    edge: Edge, part: WeightedReference, default: ModelName | None, endpoint: str
) -> str:
    """The resource name of what was typed: a version of that name, else an alias."""
    if part.model is None and default is None:
        raise UsageError(
            f"{part.target}: endpoint {endpoint} has targets of several models;"
            f" write MODEL@{part.target}"
        )
    model = part.model or (default.model if default else "")
    version, alias = VersionName(model, part.target), AliasName(model, part.target)
    if await _exists(
        edge.models.GetModelVersion(
            model_service_pb2.GetModelVersionRequest(name=str(version)), timeout=CALL_SECONDS
        )
    ):
        return str(version)
    if await _exists(
        edge.models.GetAlias(
            model_service_pb2.GetAliasRequest(name=str(alias)), timeout=CALL_SECONDS
        )
    ):
        return str(alias)
    hint = "" if part.model else " Targets of another model are written MODEL@VERSION."
    raise NotFoundError(
        f"model {model} has neither a version nor an alias {part.target!r}.{hint}",
        reason="TARGET_NOT_FOUND",
        metadata={"model": model, "target": part.target},
    )


async def _exists(call: Awaitable[object]) -> bool:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return False
        raise
    return True
