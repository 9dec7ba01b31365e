"""What the router has read of the registry: endpoints, aliases, and what matters of versions, as of a revision."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from services.router.domain.topology import Endpoint
from services.rpc.names import AliasName, EndpointName, VersionName


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """An endpoint set, or deleted (`value` is None)."""

    name: EndpointName
    value: Endpoint | None


@dataclass(frozen=True, slots=True)
class AliasChange:
    """An alias set, or deleted (`value` is None)."""

    name: AliasName
    value: VersionName | None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A version set, or deleted (then it is neither)."""

    name: VersionName
    stateful: bool  # keeps state between requests
    language: bool = False  # is a language model


CatalogChange: TypeAlias = EndpointChange | AliasChange | VersionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogUpdate:
    """A message of the registry's watch."""

    changes: tuple[CatalogChange, ...]
    synced: bool  # False: part of the initial state, more follows
    restart: bool = False  # True: first message of a watch that begins with all there is


class Catalog:
    """Endpoints, aliases, and what matters of versions. While a new initial state arrives, the old one stays."""

    def __init__(self) -> None:
        self._endpoints: dict[EndpointName, Endpoint] = {}
        self._aliases: dict[AliasName, VersionName] = {}
        self._stateful: set[VersionName] = set()
        self._language: set[VersionName] = set()
        self._arriving: Catalog | None = None
        self.is_synced = False

    def apply(self, update: CatalogUpdate) -> bool:
        """Take a message; whether what can be read here may have changed."""
        if update.restart:
            self._arriving = Catalog()
        place = self if self._arriving is None else self._arriving
        place._set(update.changes)
        if self._arriving is not None:
            if not update.synced:
                return False
            arrived = self._arriving
            self._endpoints, self._aliases = arrived._endpoints, arrived._aliases
            self._stateful, self._language = arrived._stateful, arrived._language
            self._arriving = None
        self.is_synced = True
        return True

    def _set(self, changes: Iterable[CatalogChange]) -> None:
        for change in changes:
            match change:
                case EndpointChange(name, None):
                    self._endpoints.pop(name, None)
                case EndpointChange(name, Endpoint() as endpoint):
                    self._endpoints[name] = endpoint
                case AliasChange(alias, None):
                    self._aliases.pop(alias, None)
                case AliasChange(alias, VersionName() as version):
                    self._aliases[alias] = version
                case VersionChange(version, stateful, language):
                    _mark(self._stateful, version, is_in=stateful)
                    _mark(self._language, version, is_in=language)

    @property
    def endpoints(self) -> Iterable[Endpoint]:
        """All endpoints, in no order."""
        return self._endpoints.values()

    @property
    def aliases(self) -> Mapping[AliasName, VersionName]:
        """The version that each alias names."""
        return self._aliases

    @property
    def stateful(self) -> AbstractSet[VersionName]:
        """Versions that keep state between the requests of a sequence."""
        return self._stateful

    @property
    def language(self) -> AbstractSet[VersionName]:
        """Versions that are language models."""
        return self._language


def _mark(versions: set[VersionName], version: VersionName, *, is_in: bool) -> None:
    if is_in:
        versions.add(version)
    else:
        versions.discard(version)
