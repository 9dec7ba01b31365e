"""`inferplane.registry.v1.ModelService`: models, versions and aliases."""

from dataclasses import dataclass
from typing import Any

import grpc
from inferplane.registry.v1 import model_pb2
from inferplane.registry.v1 import model_service_pb2 as pb
from inferplane.registry.v1.model_service_pb2_grpc import ModelServiceServicer

from services.registry.drivers.declarations import Declarations
from services.registry.drivers.models import Aliases, Models
from services.registry.drivers.tunings import TuningOrder, Tunings
from services.registry.drivers.versions import Versions
from services.registry.servicers.model_messages import (
    alias_message,
    declaration,
    model_message,
    version_message,
)
from services.registry.servicers.settings_messages import read_tuning
from services.rpc import names
from services.rpc.clock import Clock
from services.rpc.page import page_request
from services.rpc.violations import Violations

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class UseCases:
    """What the service is a door to."""

    models: Models
    declarations: Declarations
    versions: Versions
    tunings: Tunings
    aliases: Aliases


class ModelService(ModelServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, use: UseCases, clock: Clock) -> None:
        self._use = use
        self._clock = clock

    async def CreateModel(
        self, request: pb.CreateModelRequest, context: _Context
    ) -> pb.CreateModelResponse:
        name = names.ModelName(names.check_id("model_id", request.model_id))
        model = await self._use.models.create(
            name, request.model.description, dict(request.model.tags)
        )
        return pb.CreateModelResponse(model=model_message(model))

    async def GetModel(self, request: pb.GetModelRequest, context: _Context) -> pb.GetModelResponse:
        model = await self._use.models.get(names.parse_model("name", request.name))
        return pb.GetModelResponse(model=model_message(model))

    async def ListModels(
        self, request: pb.ListModelsRequest, context: _Context
    ) -> pb.ListModelsResponse:
        wanted = page_request("models", request.page_size, request.page_token)
        page = await self._use.models.list(wanted)
        return pb.ListModelsResponse(
            models=[model_message(model) for model in page.items],
            next_page_token=page.next_page_token,
        )

    async def UpdateModel(
        self, request: pb.UpdateModelRequest, context: _Context
    ) -> pb.UpdateModelResponse:
        name = names.parse_model("model.name", request.model.name)
        model = await self._use.models.update(
            name,
            description=request.model.description,
            tags=dict(request.model.tags),
            mask=tuple(request.update_mask.paths),
            etag=request.model.etag,
        )
        return pb.UpdateModelResponse(model=model_message(model))

    async def DeleteModel(
        self, request: pb.DeleteModelRequest, context: _Context
    ) -> pb.DeleteModelResponse:
        name = names.parse_model("name", request.name)
        await self._use.models.delete(name, request.etag, force=request.force)
        return pb.DeleteModelResponse()

    async def CreateModelVersion(
        self, request: pb.CreateModelVersionRequest, context: _Context
    ) -> pb.CreateModelVersionResponse:
        violations = Violations()
        parent = violations.take(names.parse_model, "parent", request.parent)
        version_id = violations.take(names.check_id, "version_id", request.version_id)
        violations.raise_if_any()
        assert parent is not None
        assert version_id is not None
        name = names.VersionName(parent.model, version_id)
        version = await self._use.declarations.declare(name, declaration(request.model_version))
        return pb.CreateModelVersionResponse(model_version=version_message(version))

    async def FinishModelVersion(
        self, request: pb.FinishModelVersionRequest, context: _Context
    ) -> pb.FinishModelVersionResponse:
        version = await self._use.versions.finish(names.parse_version("name", request.name))
        return pb.FinishModelVersionResponse(model_version=version_message(version))

    async def GetModelVersion(
        self, request: pb.GetModelVersionRequest, context: _Context
    ) -> pb.GetModelVersionResponse:
        version = await self._use.versions.get(names.parse_version("name", request.name))
        return pb.GetModelVersionResponse(model_version=version_message(version))

    async def ListModelVersions(
        self, request: pb.ListModelVersionsRequest, context: _Context
    ) -> pb.ListModelVersionsResponse:
        all_models = request.parent == "models/-"
        parent = None if all_models else names.parse_model("parent", request.parent)
        listing = f"{request.parent}/versions"
        wanted = page_request(listing, request.page_size, request.page_token)
        page = await self._use.versions.list(parent, wanted)
        return pb.ListModelVersionsResponse(
            model_versions=[version_message(version) for version in page.items],
            next_page_token=page.next_page_token,
        )

    async def DeleteModelVersion(
        self, request: pb.DeleteModelVersionRequest, context: _Context
    ) -> pb.DeleteModelVersionResponse:
        name = names.parse_version("name", request.name)
        await self._use.versions.delete(name, request.etag)
        return pb.DeleteModelVersionResponse()

    async def SetModelVersionTuning(
        self, request: pb.SetModelVersionTuningRequest, context: _Context
    ) -> pb.SetModelVersionTuningResponse:
        given = request.tuning if request.HasField("tuning") else None
        order = TuningOrder(
            tuning=None if given is None else read_tuning(given, self._clock.now()),
            only_if_unset=request.only_if_unset,
            measure=request.measure,
        )
        version = await self._use.tunings.set(names.parse_version("name", request.name), order)
        return pb.SetModelVersionTuningResponse(model_version=version_message(version))

    async def SetAlias(self, request: pb.SetAliasRequest, context: _Context) -> pb.SetAliasResponse:
        name, version = _alias_target(request.alias)
        alias = await self._use.aliases.set(name, version, request.alias.etag)
        return pb.SetAliasResponse(alias=alias_message(alias))

    async def GetAlias(self, request: pb.GetAliasRequest, context: _Context) -> pb.GetAliasResponse:
        alias = await self._use.aliases.get(names.parse_alias("name", request.name))
        return pb.GetAliasResponse(alias=alias_message(alias))

    async def ListAliases(
        self, request: pb.ListAliasesRequest, context: _Context
    ) -> pb.ListAliasesResponse:
        parent = names.parse_model("parent", request.parent)
        wanted = page_request(f"{parent}/aliases", request.page_size, request.page_token)
        page = await self._use.aliases.list(parent, wanted)
        return pb.ListAliasesResponse(
            aliases=[alias_message(alias) for alias in page.items],
            next_page_token=page.next_page_token,
        )

    async def DeleteAlias(
        self, request: pb.DeleteAliasRequest, context: _Context
    ) -> pb.DeleteAliasResponse:
        await self._use.aliases.delete(names.parse_alias("name", request.name), request.etag)
        return pb.DeleteAliasResponse()


def _alias_target(alias: model_pb2.Alias) -> tuple[names.AliasName, names.VersionName]:
    violations = Violations()
    name = violations.take(names.parse_alias, "alias.name", alias.name)
    version = violations.take(names.parse_version, "alias.version", alias.version)
    if name is not None and version is not None:
        violations.require(
            name.model == version.model,
            "alias.version",
            f"{version} is of another model; allowed: a version of {name.parent}",
        )
    violations.raise_if_any()
    assert name is not None
    assert version is not None
    return name, version
