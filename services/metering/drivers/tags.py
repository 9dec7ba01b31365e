"""Tags of projects and keys, for reports by them."""

from collections.abc import Mapping
from typing import Protocol

from services.rpc.errors import NotFoundError
from services.rpc.names import KeyName, ProjectName


class Tagged(Protocol):
    """What has tags."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Free words."""
        ...


class Projects(Protocol):
    """Knows projects."""

    async def get(self, name: ProjectName) -> Tagged:
        """The project; NotFoundError if there is none."""
        ...


class Keys(Protocol):
    """Knows keys."""

    async def get(self, name: KeyName) -> Tagged:
        """The key; NotFoundError if there is none."""
        ...


class Tags:
    """Looks tags up as they are now; remembers them for as long as one report takes."""

    def __init__(self, projects: Projects, keys: Keys) -> None:
        self._projects = projects
        self._keys = keys
        self._known: dict[tuple[str, str], Mapping[str, str]] = {}

    async def of(self, project: str, key: str) -> Mapping[str, str]:
        """The key's tags, and those of its project that it doesn't have itself."""
        found = self._known.get((project, key))
        if found is None:
            found = {
                **(await self._of_project(project) if project else {}),
                **(await self._of_key(project, key) if project and key else {}),
            }
            self._known[project, key] = found
        return found

    async def _of_project(self, project: str) -> Mapping[str, str]:
        known = self._known.get((project, ""))
        if known is None:
            try:
                known = (await self._projects.get(ProjectName(project))).tags
            except NotFoundError:
                known = {}
            self._known[project, ""] = known
        return known

    async def _of_key(self, project: str, key: str) -> Mapping[str, str]:
        try:
            return (await self._keys.get(KeyName(project, key))).tags
        except NotFoundError:  # somebody else's token: keys of issuers are not ours
            return {}
