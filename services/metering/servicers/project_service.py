"""`inferplane.metering.v1.ProjectService`: who pays."""

from typing import Any

import grpc
from inferplane.metering.v1 import project_service_pb2 as pb
from inferplane.metering.v1.project_service_pb2_grpc import ProjectServiceServicer

from services.metering.drivers.projects import Projects
from services.metering.servicers.identity_messages import project_input, project_message
from services.rpc import names
from services.rpc.page import page_request

_Context = grpc.aio.ServicerContext[Any, Any]


class ProjectService(ProjectServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def CreateProject(
        self, request: pb.CreateProjectRequest, context: _Context
    ) -> pb.CreateProjectResponse:
        name = names.parse_project("project.name", request.project.name)
        project = await self._projects.create(name, project_input(request.project))
        return pb.CreateProjectResponse(project=project_message(project))

    async def GetProject(
        self, request: pb.GetProjectRequest, context: _Context
    ) -> pb.GetProjectResponse:
        project = await self._projects.get(names.parse_project("name", request.name))
        return pb.GetProjectResponse(project=project_message(project))

    async def ListProjects(
        self, request: pb.ListProjectsRequest, context: _Context
    ) -> pb.ListProjectsResponse:
        wanted = page_request("projects", request.page_size, request.page_token)
        page = await self._projects.list(wanted)
        return pb.ListProjectsResponse(
            projects=[project_message(project) for project in page.items],
            next_page_token=page.next_page_token,
        )

    async def UpdateProject(
        self, request: pb.UpdateProjectRequest, context: _Context
    ) -> pb.UpdateProjectResponse:
        project = await self._projects.update(
            names.parse_project("project.name", request.project.name),
            project_input(request.project),
            tuple(request.update_mask.paths),
            request.project.etag,
        )
        return pb.UpdateProjectResponse(project=project_message(project))
