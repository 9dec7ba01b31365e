"""Calls that must be refused, and what a refusal must say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration
from inferplane.discovery.v1 import discovery_service_pb2 as discovery_pb
from inferplane.discovery.v1 import worker_pb2
from inferplane.registry.v1 import endpoint_pb2, model_pb2
from inferplane.registry.v1 import endpoint_service_pb2 as endpoint_pb
from inferplane.registry.v1 import model_service_pb2 as model_pb
from inferplane.registry.v1 import watch_service_pb2 as watch_pb

from tests.integration.registry.client import Client, policy


@dataclass(frozen=True, slots=True)
class Row:
    """One call that must be refused, and how."""

    says: str
    call: Callable[[Client], Awaitable[object]]
    code: str
    reason: str
    fields: tuple[str, ...]
    texts: tuple[str, ...]


def invalid(
    says: str,
    call: Callable[[Client], Awaitable[object]],
    field: str | tuple[str, ...],
    *texts: str,
) -> Row:
    fields = (field,) if isinstance(field, str) else field
    return Row(says, call, "INVALID_ARGUMENT", "INVALID_FIELD", fields, texts)


def missing(says: str, call: Callable[[Client], Awaitable[object]], *texts: str) -> Row:
    return Row(says, call, "NOT_FOUND", "NOT_FOUND", (), texts)


def create_model(model_id: str, **fields: Any) -> Callable[[Client], Awaitable[object]]:
    request = model_pb.CreateModelRequest(model_id=model_id, model=model_pb2.Model(**fields))
    return lambda client: client.models.CreateModel(request)


def get_model(name: str) -> Callable[[Client], Awaitable[object]]:
    return lambda client: client.models.GetModel(model_pb.GetModelRequest(name=name))


def create_version(**fields: Any) -> Callable[[Client], Awaitable[object]]:
    version: dict[str, Any] = {
        "format": 1,
        "files": [{"path": "m.onnx", "size_bytes": 1, "sha256": "0" * 64}],
    }
    request = model_pb.CreateModelVersionRequest(
        parent="models/m", version_id="9", model_version=model_pb2.ModelVersion(**version | fields)
    )
    return lambda client: client.models.CreateModelVersion(request)


def create_endpoint(
    endpoint: endpoint_pb2.Endpoint, endpoint_id: str = "e"
) -> Callable[[Client], Awaitable[object]]:
    request = endpoint_pb.CreateEndpointRequest(endpoint_id=endpoint_id, endpoint=endpoint)
    return lambda client: client.endpoints.CreateEndpoint(request)


def targets(*weights: float) -> Callable[[Client], Awaitable[object]]:
    return create_endpoint(policy(**{f"m__{n + 1}": weight for n, weight in enumerate(weights)}))


def with_policy(**fields: Any) -> Callable[[Client], Awaitable[object]]:
    endpoint = policy(m__1=1)
    endpoint.MergeFrom(endpoint_pb2.Endpoint(**fields))
    return create_endpoint(endpoint)


def register(ttl: Duration | None = None, **fields: Any) -> Callable[[Client], Awaitable[object]]:
    worker = {"name": "workers/w", "pool": "default", "address": "unix:/run/w.sock"} | fields
    request = discovery_pb.RegisterWorkerRequest(worker=worker_pb2.Worker(**worker), ttl=ttl)
    return lambda client: client.discovery.RegisterWorker(request)


def watch(**fields: Any) -> Callable[[Client], Awaitable[object]]:
    request = watch_pb.WatchRequest(**fields)
    return lambda client: client.watches.Watch(request).read()
