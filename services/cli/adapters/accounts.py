"""Projects, API keys and their limits, as the edge's management API has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.metering.v1 import (
    api_key_pb2,
    api_key_service_pb2,
    limits_pb2,
    project_pb2,
    project_service_pb2,
)

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.rpc.names import KeyName, ProjectName

_PAGE = 1000
_ATTEMPTS = 5  # somebody else may be quicker each time


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrder:
    """A key that is wanted."""

    project: str
    label: str
    role: int  # Role
    endpoints: tuple[str, ...]
    tags: Mapping[str, str]
    lifetime: timedelta | None  # None: metering's default


async def create_project(edge: Edge, project: project_pb2.Project) -> project_pb2.Project:
    """A new project."""
    request = project_service_pb2.CreateProjectRequest(project=project)
    response = await edge.projects.CreateProject(request, timeout=CALL_SECONDS)
    return response.project


async def get_project(edge: Edge, name: ProjectName) -> project_pb2.Project:
    """One project."""
    request = project_service_pb2.GetProjectRequest(name=str(name))
    response = await edge.projects.GetProject(request, timeout=CALL_SECONDS)
    return response.project


async def list_projects(edge: Edge) -> list[project_pb2.Project]:
    """All projects, by name."""

    def page(token: str) -> Any:
        request = project_service_pb2.ListProjectsRequest(page_size=_PAGE, page_token=token)
        return edge.projects.ListProjects(request, timeout=CALL_SECONDS)

    return await pages(page, lambda response: list(response.projects))


async def update_project(
    edge: Edge, project: project_pb2.Project, fields: list[str]
) -> project_pb2.Project:
    """Write these fields of a project."""
    request = project_service_pb2.UpdateProjectRequest(
        project=project, update_mask=FieldMask(paths=fields)
    )
    response = await edge.projects.UpdateProject(request, timeout=CALL_SECONDS)
    return response.project


async def create_key(edge: Edge, order: KeyOrder) -> api_key_service_pb2.CreateApiKeyResponse:
    """A new key, with its token."""
    request = api_key_service_pb2.CreateApiKeyRequest(
        parent=str(ProjectName(order.project)),
        api_key=api_key_pb2.ApiKey(
            label=order.label,
            role=api_key_pb2.Role.ValueType(order.role),
            endpoints=order.endpoints,
            tags=order.tags,
        ),
        lifetime=_duration(order.lifetime),
    )
    return await edge.api_keys.CreateApiKey(request, timeout=CALL_SECONDS)


async def get_key(edge: Edge, name: KeyName) -> api_key_pb2.ApiKey:
    """One key."""
    request = api_key_service_pb2.GetApiKeyRequest(name=str(name))
    response = await edge.api_keys.GetApiKey(request, timeout=CALL_SECONDS)
    return response.api_key


async def update_key(edge: Edge, key: api_key_pb2.ApiKey, fields: list[str]) -> api_key_pb2.ApiKey:
    """Write these fields of a key."""
    request = api_key_service_pb2.UpdateApiKeyRequest(
        api_key=key, update_mask=FieldMask(paths=fields)
    )
    response = await edge.api_keys.UpdateApiKey(request, timeout=CALL_SECONDS)
    return response.api_key


async def list_keys(edge: Edge, parent: str, *, ended: bool) -> list[api_key_pb2.ApiKey]:
    """The keys of a project, oldest first; also those that nobody may use any more if `ended`."""

    def page(token: str) -> Any:
        request = api_key_service_pb2.ListApiKeysRequest(
            parent=parent, page_size=_PAGE, page_token=token, show_ended=ended
        )
        return edge.api_keys.ListApiKeys(request, timeout=CALL_SECONDS)

    return await pages(page, lambda response: list(response.api_keys))


async def rotate_key(
    edge: Edge, name: KeyName, overlap: timedelta | None, lifetime: timedelta | None
) -> api_key_service_pb2.RotateApiKeyResponse:
    """Another key with the same rights, with its token."""
    request = api_key_service_pb2.RotateApiKeyRequest(
        name=str(name), overlap=_duration(overlap), lifetime=_duration(lifetime)
    )
    return await edge.api_keys.RotateApiKey(request, timeout=CALL_SECONDS)


async def revoke_key(edge: Edge, name: KeyName) -> api_key_pb2.ApiKey:
    """End a key at once."""
    request = api_key_service_pb2.RevokeApiKeyRequest(name=str(name))
    response = await edge.api_keys.RevokeApiKey(request, timeout=CALL_SECONDS)
    return response.api_key


async def rotate_signing_key(edge: Edge, overlap: timedelta | None) -> str:
    """Sign new tokens with another key; its id."""
    request = api_key_service_pb2.RotateSigningKeyRequest(overlap=_duration(overlap))
    response = await edge.api_keys.RotateSigningKey(request, timeout=CALL_SECONDS)
    return response.kid


async def get_limits(edge: Edge, subject: ProjectName | KeyName) -> limits_pb2.Limits:
    """The limits of a project or key."""
    return (await _get(edge, subject)).limits


async def change_limits(
    edge: Edge, subject: ProjectName | KeyName, changes: Mapping[str, float | bool]
) -> limits_pb2.Limits:
    """Set these limits and leave the others, on what somebody else may have written meanwhile."""
    for last in (False,) * (_ATTEMPTS - 1) + (True,):
        found = await _get(edge, subject)
        for field, value in changes.items():
            setattr(found.limits, field, value)
        try:
            return await _write_limits(edge, found)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ABORTED or last:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _get(
    edge: Edge, subject: ProjectName | KeyName
) -> project_pb2.Project | api_key_pb2.ApiKey:
    if isinstance(subject, ProjectName):
        return await get_project(edge, subject)
    return await get_key(edge, subject)


async def _write_limits(
    edge: Edge, found: project_pb2.Project | api_key_pb2.ApiKey
) -> limits_pb2.Limits:
    if isinstance(found, project_pb2.Project):
        return (await update_project(edge, found, ["limits"])).limits
    return (await update_key(edge, found, ["limits"])).limits


def _duration(span: timedelta | None) -> Duration | None:
    if span is None:
        return None
    made = Duration()
    made.FromTimedelta(span)
    return made
