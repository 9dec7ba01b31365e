"""A snapshot: everything that Envoy is to have, named, versioned by content, and consistent in itself."""

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

_VERSION_DIGITS = 16  # hex digits of SHA-256 that a version keeps


class Kind(Enum):
    """The types of resources; values are Envoy's words for them in short."""

    SECRET = "secret"  # noqa: S105 - names of files: certificates, and by whom they must be
    CLUSTER = "cluster"
    ASSIGNMENT = "assignment"  # Envoy's ClusterLoadAssignment: the hosts of a cluster
    FILTER = "filter"  # an HTTP filter of the listener that may change while the listener stays
    LISTENER = "listener"
    ROUTES = "routes"


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """Another resource that a resource names."""

    kind: Kind = field(compare=False)
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One opaque resource. Equal bodies have equal versions, on every router."""

    kind: Kind
    name: str
    body: bytes
    version: str
    references: tuple[Reference, ...] = ()
    # True: it takes something away (the last host of a cluster) and so must wait until nobody counts on it.
    breaks: bool = False
    # Of the clients that get it in place of the resource of this name; empty: all others.
    zone: str = ""

    @classmethod
    def of(
        cls,
        kind: Kind,
        name: str,
        body: bytes,
        references: Iterable[Reference] = (),
        *,
        breaks: bool = False,
    ) -> "Resource":
        """Build one, with the version that follows from the body."""
        version = hashlib.sha256(body).hexdigest()[:_VERSION_DIGITS]
        return cls(
            kind=kind,
            name=name,
            body=body,
            version=version,
            references=tuple(references),
            breaks=breaks,
        )

    def within(self, zone: str) -> "Resource":
        """The same, for the clients of this zone only; empty: for all others."""
        return replace(self, zone=zone)


class InconsistentSnapshotError(Exception):
    """The resources don't add up; the text says which names what that is not there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Resources by kind and name. Made by `build`, which refuses what doesn't add up."""

    version: str
    _resources: Mapping[Kind, Mapping[str, Resource]]
    # Kinds of which nothing can be said yet: what clients have of them stays as it is.
    unknown: frozenset[Kind] = frozenset()
    _zones: Mapping[str, "Snapshot"] = field(default_factory=dict)

    @classmethod
    def build(
        cls, resources: Iterable[Resource], unknown: AbstractSet[Kind] = frozenset()
    ) -> "Snapshot":
        """Check that names are unique and every reference resolves; InconsistentSnapshotError lists all that don't."""
        by_kind: dict[Kind, dict[str, Resource]] = {kind: {} for kind in Kind}
        zoned: dict[str, list[Resource]] = {}
        problems: list[str] = []
        for resource in resources:
            if resource.zone:
                zoned.setdefault(resource.zone, []).append(resource)
                continue
            if resource.name in by_kind[resource.kind]:
                problems.append(f"{resource.kind.value} {resource.name!r} is there twice")
            by_kind[resource.kind][resource.name] = resource
        for kind in Kind:
            for resource in by_kind[kind].values():
                problems.extend(
                    f"{kind.value} {resource.name!r} names {wanted.kind.value}"
                    f" {wanted.name!r}, which is not there"
                    for wanted in resource.references
                    if wanted.kind not in unknown and wanted.name not in by_kind[wanted.kind]
                )
        problems += _misplaced(zoned, by_kind)
        if problems:
            raise InconsistentSnapshotError("; ".join(sorted(problems)))
        zones = {
            zone: cls(_overall_version(seen), MappingProxyType(seen), frozenset(unknown))
            for zone in sorted(zoned)
            for seen in [_replaced(by_kind, zoned[zone])]
        }
        version = _with_zones(_overall_version(by_kind), zones)
        return cls(version, MappingProxyType(by_kind), frozenset(unknown), MappingProxyType(zones))

    def seen_from(self, zone: str) -> "Snapshot":
        """What a client in this zone gets."""
        return self._zones.get(zone, self)

    def of_kind(self, kind: Kind) -> Mapping[str, Resource]:
        """All resources of a kind by name."""
        return self._resources[kind]


def _overall_version(by_kind: Mapping[Kind, Mapping[str, Resource]]) -> str:
    digest = hashlib.sha256()
    for kind in Kind:
        for name in sorted(by_kind[kind]):
            digest.update(f"{kind.value}\0{name}\0{by_kind[kind][name].version}\n".encode())
    return digest.hexdigest()[:_VERSION_DIGITS]


def _misplaced(
    zoned: Mapping[str, Iterable[Resource]], by_kind: Mapping[Kind, Mapping[str, Resource]]
) -> list[str]:
    """Resources for a zone that stand for none, or would bring references that nobody has looked at."""
    return [
        f"{resource.kind.value} {resource.name!r} for zone {zone!r} stands for nothing like it"
        for zone, resources in zoned.items()
        for resource in resources
        if (one := by_kind[resource.kind].get(resource.name)) is None
        or one.references != resource.references
    ]


def _replaced(
    by_kind: Mapping[Kind, Mapping[str, Resource]], others: Iterable[Resource]
) -> dict[Kind, dict[str, Resource]]:
    seen = {kind: dict(resources) for kind, resources in by_kind.items()}
    for resource in others:
        seen[resource.kind][resource.name] = resource
    return seen


def _with_zones(version: str, zones: Mapping[str, Snapshot]) -> str:
    """The version of all that any client may get; without zones as it was."""
    if not zones:
        return version
    told = "".join(f"{zone}\0{zones[zone].version}\n" for zone in sorted(zones))
    return hashlib.sha256(f"{version}\n{told}".encode()).hexdigest()[:_VERSION_DIGITS]
