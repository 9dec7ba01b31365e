"""Who may call which method at the edge. What is not in here is refused to everyone."""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache

from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from inference import open_inference_pb2
from inferplane.discovery.v1 import discovery_service_pb2
from inferplane.generation.v1 import generation_service_pb2
from inferplane.metering.v1 import (
    api_key_service_pb2,
    budget_service_pb2,
    lease_service_pb2,
    ledger_service_pb2,
    policy_service_pb2,
    price_service_pb2,
    project_service_pb2,
    spending_alert_service_pb2,
    usage_report_service_pb2,
    usage_service_pb2,
)
from inferplane.oip.v1 import rest_service_pb2
from inferplane.openai.v1 import openai_service_pb2
from inferplane.registry.v1 import (
    artifact_service_pb2,
    endpoint_service_pb2,
    model_service_pb2,
    placement_service_pb2,
    watch_service_pb2,
)
from inferplane.router.v1 import router_service_pb2

from services.router.resources import methods


class Access(Enum):
    """The least role that may call a method; values are as tokens have them."""

    CALLER = "caller"
    VIEWER = "viewer"
    DEPLOYER = "deployer"
    ADMIN = "admin"
    NOBODY = "nobody"  # between services, never at the edge

    def roles(self) -> tuple[str, ...]:
        """Roles that may."""
        return _ROLES[_ROLES.index(self.value) :] if self.value in _ROLES else ()


_ROLES = ("caller", "viewer", "deployer", "admin")
_READS = ("Get", "List", "Watch", "Query", "Export")

# Of these services, whoever may change; those that may read are viewers.
_MANAGED: tuple[tuple[FileDescriptor, Access], ...] = (
    (model_service_pb2.DESCRIPTOR, Access.DEPLOYER),
    (artifact_service_pb2.DESCRIPTOR, Access.DEPLOYER),
    (endpoint_service_pb2.DESCRIPTOR, Access.DEPLOYER),
    (placement_service_pb2.DESCRIPTOR, Access.DEPLOYER),
    (watch_service_pb2.DESCRIPTOR, Access.DEPLOYER),
    # Of discovery and the router only reads are for the edge.
    (discovery_service_pb2.DESCRIPTOR, Access.NOBODY),
    (router_service_pb2.DESCRIPTOR, Access.NOBODY),
    (project_service_pb2.DESCRIPTOR, Access.ADMIN),
    (api_key_service_pb2.DESCRIPTOR, Access.ADMIN),
    (budget_service_pb2.DESCRIPTOR, Access.ADMIN),
    (price_service_pb2.DESCRIPTOR, Access.ADMIN),
    (ledger_service_pb2.DESCRIPTOR, Access.ADMIN),
    (usage_report_service_pb2.DESCRIPTOR, Access.ADMIN),
    (spending_alert_service_pb2.DESCRIPTOR, Access.ADMIN),
)
# Of these services nothing is for the edge.
_INTERNAL = (
    policy_service_pb2.DESCRIPTOR,
    usage_service_pb2.DESCRIPTOR,
    lease_service_pb2.DESCRIPTOR,
)
# Of these services every method is a caller's, but for those below.
_CALLED = (
    open_inference_pb2.DESCRIPTOR,
    rest_service_pb2.DESCRIPTOR,
    generation_service_pb2.DESCRIPTOR,
    openai_service_pb2.DESCRIPTOR,
)
_APART = {
    "ModelStatistics": Access.VIEWER,
    "RepositoryIndex": Access.VIEWER,
    "RepositoryModelLoad": Access.DEPLOYER,
    "RepositoryModelUnload": Access.DEPLOYER,
}
_OTHERS = (
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/List",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
_METERING = "inferplane.metering.v1."


@cache
def table() -> Mapping[str, Access]:
    """Path of a gRPC method (REST's after it was transcoded) → who may call it."""
    found = dict.fromkeys(_OTHERS, Access.CALLER)
    for service in _services(_CALLED):
        for method in service.methods:
            found[_path(service, method.name)] = _APART.get(method.name, Access.CALLER)
    for service in _services(_INTERNAL):
        for method in service.methods:
            found[_path(service, method.name)] = Access.NOBODY
    for file, writes in _MANAGED:
        for service in _services([file]):
            for method in service.methods:
                is_read = method.name.startswith(_READS)
                found[_path(service, method.name)] = Access.VIEWER if is_read else writes
    return found


def of_metering() -> tuple[str, ...]:
    """Paths of metering's methods that somebody may call."""
    return tuple(
        sorted(
            path
            for path, who in table().items()
            if path.startswith(f"/{_METERING}") and who is not Access.NOBODY
        )
    )


def services() -> tuple[str, ...]:
    """What clients find at the edge, for reflection: without what REST's calls become."""
    files = (open_inference_pb2.DESCRIPTOR, generation_service_pb2.DESCRIPTOR)
    managed = (file for file, _ in _MANAGED)
    return tuple(service.full_name for service in _services((*files, *managed)))


def _services(files: Iterable[FileDescriptor]) -> Iterable[ServiceDescriptor]:
    for file in files:
        yield from file.services_by_name.values()


def _path(service: ServiceDescriptor, method: str) -> str:
    return methods.path(f"{service.full_name}.{method}")
