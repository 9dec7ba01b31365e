"""The catalog: everything the store keeps, what kind it is, how it is ordered, and what refers to what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import Alias, BlobId, Model, ModelVersion, VersionState
from services.registry.domain.placement import Placement
from services.rpc.names import (
    AliasName,
    EndpointName,
    ModelName,
    PlacementName,
    PoolName,
    VersionName,
)

Record: TypeAlias = Model | ModelVersion | Alias | Endpoint | Placement
Name: TypeAlias = ModelName | VersionName | AliasName | EndpointName | PlacementName
R = TypeVar("R", Model, ModelVersion, Alias, Endpoint, Placement)


class ResourceKind(Enum):
    """Kind of a resource; in this order a resource comes after what it refers to."""

    MODEL = "model"
    MODEL_VERSION = "model_version"
    ALIAS = "alias"
    PLACEMENT = "placement"
    ENDPOINT = "endpoint"


KIND_OF: Mapping[type[Record], ResourceKind] = {
    Model: ResourceKind.MODEL,
    ModelVersion: ResourceKind.MODEL_VERSION,
    Alias: ResourceKind.ALIAS,
    Placement: ResourceKind.PLACEMENT,
    Endpoint: ResourceKind.ENDPOINT,
}
KIND_OF_NAME: Mapping[type[Name], ResourceKind] = {
    ModelName: ResourceKind.MODEL,
    VersionName: ResourceKind.MODEL_VERSION,
    AliasName: ResourceKind.ALIAS,
    PlacementName: ResourceKind.PLACEMENT,
    EndpointName: ResourceKind.ENDPOINT,
}
ALL_KINDS = frozenset(ResourceKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which resources of one kind, in the kind's order."""

    parent: ModelName | PoolName | None = None  # None: of all
    after: str = ""  # sort key of the last one already seen
    limit: int | None = None
    state: VersionState | None = None  # versions only


@dataclass(frozen=True, slots=True)
class Change:
    """A resource as it is now, or None if it is no more."""

    kind: ResourceKind
    name: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All that changed up to a revision, every resource once."""

    revision: int
    changes: Sequence[Change]


def parent_of(name: Name) -> str:
    """Name of what a resource is listed under; empty for those without a parent."""
    match name:
        case VersionName() | AliasName():
            return str(name.parent)
        case PlacementName():
            return str(PoolName(name.pool))
        case _:
            return ""


def sort_key(record: Record) -> str:
    """Resources of a kind are listed in the order of this key; it is unique."""
    if isinstance(record, ModelVersion):
        # Fixed width and UTC, so that text sorts as time does.
        return f"{record.create_time.isoformat(timespec='microseconds')} {record.name}"
    return str(record.name)


def referred_by(record: Record) -> frozenset[Name]:
    """What a resource refers to directly; none of it may go while this is there."""
    match record:
        case ModelVersion():
            return frozenset({record.name.parent})
        case Alias():
            return frozenset({record.name.parent, record.version})
        case Placement():
            return frozenset({record.version})
        case Endpoint():
            return frozenset(target for _, target in record.references)
        case Model():
            return frozenset()


def blobs_of(record: Record) -> frozenset[BlobId]:
    """Contents that must be kept for this resource."""
    if isinstance(record, ModelVersion):
        return frozenset(file.blob for file in record.files)
    return frozenset()
