"""Plain reads and deletions of the registry's resources."""

import asyncio
from dataclasses import dataclass

import grpc
from inferplane.registry.v1 import endpoint_service_pb2, model_pb2, model_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.cli.adapters.push import list_versions
from services.rpc.names import AliasName, EndpointName, ModelName, VersionName, check_id

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ModelsAndVersions:
    """Everything there is to list."""

    models: list[model_pb2.Model]
    versions: list[model_pb2.ModelVersion]


@dataclass(frozen=True, slots=True)
class WholeModel:
    """One model with what belongs to it."""

    model: model_pb2.Model
    versions: list[model_pb2.ModelVersion]
    aliases: list[model_pb2.Alias]


async def models_and_versions(edge: Edge) -> ModelsAndVersions:
    """All models and all their versions."""

    def page(
        token: str,
    ) -> grpc.aio.UnaryUnaryCall[
        model_service_pb2.ListModelsRequest, model_service_pb2.ListModelsResponse
    ]:
        return edge.models.ListModels(
            model_service_pb2.ListModelsRequest(page_size=_PAGE, page_token=token),
            timeout=CALL_SECONDS,
        )

    models, versions = await asyncio.gather(
        pages(page, lambda response: list(response.models)), list_versions(edge, "-")
    )
    return ModelsAndVersions(models, versions)


async def versions_of(edge: Edge, model: str) -> list[model_pb2.ModelVersion]:
    """The versions of a model; NOT_FOUND if the model does not exist."""
    await _get_model(edge, model)
    return await list_versions(edge, model)


async def whole_model(edge: Edge, model: str) -> WholeModel:
    """A model, its versions and its aliases."""
    found = await _get_model(edge, model)
    versions, aliases = await asyncio.gather(list_versions(edge, model), list_aliases(edge, model))
    return WholeModel(found, versions, aliases)


async def _get_model(edge: Edge, model: str) -> model_pb2.Model:
    name = str(ModelName(check_id("model", model)))
    request = model_service_pb2.GetModelRequest(name=name)
    response = await edge.models.GetModel(request, timeout=CALL_SECONDS)
    return response.model


async def delete(edge: Edge, model: str, version: str | None, *, force: bool) -> None:
    """Delete a version, or the model if none is named."""
    if version is not None:
        name = str(VersionName(model, version))
        await edge.models.DeleteModelVersion(
            model_service_pb2.DeleteModelVersionRequest(name=name), timeout=CALL_SECONDS
        )
        return
    await edge.models.DeleteModel(
        model_service_pb2.DeleteModelRequest(name=str(ModelName(model)), force=force),
        timeout=CALL_SECONDS,
    )


async def set_alias(edge: Edge, version: VersionName, alias: str) -> model_pb2.Alias:
    """Create or move an alias."""
    name = AliasName(version.model, check_id("alias", alias))
    request = model_service_pb2.SetAliasRequest(
        alias=model_pb2.Alias(name=str(name), version=str(version))
    )
    response = await edge.models.SetAlias(request, timeout=CALL_SECONDS)
    return response.alias


async def list_aliases(edge: Edge, model: str) -> list[model_pb2.Alias]:
    """The aliases of a model, by name."""
    parent = str(ModelName(check_id("model", model)))

    def page(
        token: str,
    ) -> grpc.aio.UnaryUnaryCall[
        model_service_pb2.ListAliasesRequest, model_service_pb2.ListAliasesResponse
    ]:
        return edge.models.ListAliases(
            model_service_pb2.ListAliasesRequest(parent=parent, page_size=_PAGE, page_token=token),
            timeout=CALL_SECONDS,
        )

    return await pages(page, lambda response: list(response.aliases))


async def delete_alias(edge: Edge, alias: AliasName) -> None:
    """Delete an alias."""
    await edge.models.DeleteAlias(
        model_service_pb2.DeleteAliasRequest(name=str(alias)), timeout=CALL_SECONDS
    )


async def delete_endpoint(edge: Edge, endpoint: str) -> None:
    """Delete an endpoint."""
    await edge.endpoints.DeleteEndpoint(
        endpoint_service_pb2.DeleteEndpointRequest(name=str(EndpointName(endpoint))),
        timeout=CALL_SECONDS,
    )
