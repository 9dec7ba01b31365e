"""Use cases of projects."""

from collections.abc import Sequence

from services.metering.domain.etag import check_etag
from services.metering.domain.policy import project_spans
from services.metering.domain.project import Project, ProjectInput, changed_project, new_project
from services.metering.drivers.policy import Policy
from services.metering.ports.identity_store import (
    IdentityStore,
    IdentityTransaction,
    IdentityView,
)
from services.rpc.clock import Clock
from services.rpc.errors import AlreadyExistsError, NotFoundError
from services.rpc.names import ProjectName
from services.rpc.page import Page, PageRequest, cut


async def existing_project(view: IdentityView, name: ProjectName) -> Project:
    """The project; NotFoundError if there is none."""
    project = await view.project(name)
    if project is None:
        raise NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})
    return project


class Projects:
    """Creates, changes and lists projects. What the edge must know of it is told before the caller hears."""

    def __init__(self, store: IdentityStore, policy: Policy, clock: Clock) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock

    async def create(self, name: ProjectName, given: ProjectInput) -> Project:
        """AlreadyExistsError if the name is taken."""
        created = new_project(name, given, self._clock.now())

        async def work(transaction: IdentityTransaction) -> Project:
            if await transaction.project(name) is not None:
                raise AlreadyExistsError(f"{name} exists already", metadata={"resource": str(name)})
            await transaction.put_project(created)
            return created

        return await self._store.write(work, self._tell)

    async def get(self, name: ProjectName) -> Project:
        return await self._store.read(lambda view: existing_project(view, name))

    async def list(self, request: PageRequest) -> Page[Project]:
        found = await self._store.read(lambda view: view.projects(request.after, request.size + 1))
        return cut(request, found, lambda project: project.name.project)

    async def update(
        self, name: ProjectName, given: ProjectInput, mask: Sequence[str], etag: str
    ) -> Project:
        """Change the masked fields. AbortedError if an etag is given and another is stored."""

        async def work(transaction: IdentityTransaction) -> Project:
            project = await existing_project(transaction, name)
            check_etag(name, project, etag)
            changed = changed_project(project, given, mask)
            await transaction.put_project(changed)
            return changed

        return await self._store.write(work, self._tell)

    def _tell(self, project: Project) -> None:
        self._policy.put(project_spans(project))
