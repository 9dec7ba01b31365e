"""Who knows which projects there are."""

from typing import Protocol

from services.rpc.names import ProjectName


class ProjectLookup(Protocol):
    """Knows projects."""

    async def get(self, name: ProjectName) -> object:
        """The project; NotFoundError if there is none."""
        ...
