"""The services that clients find at the edge, for reflection: one answer for all, also while no worker lives."""

from google.protobuf.descriptor import FileDescriptor
from inference import open_inference_pb2
from inferplane.discovery.v1 import discovery_service_pb2
from inferplane.generation.v1 import generation_service_pb2
from inferplane.registry.v1 import (
    artifact_service_pb2,
    endpoint_service_pb2,
    model_service_pb2,
    placement_service_pb2,
    watch_service_pb2,
)
from inferplane.router.v1 import router_service_pb2

_FILES: tuple[FileDescriptor, ...] = (
    open_inference_pb2.DESCRIPTOR,
    generation_service_pb2.DESCRIPTOR,
    model_service_pb2.DESCRIPTOR,
    artifact_service_pb2.DESCRIPTOR,
    endpoint_service_pb2.DESCRIPTOR,
    placement_service_pb2.DESCRIPTOR,
    watch_service_pb2.DESCRIPTOR,
    discovery_service_pb2.DESCRIPTOR,
    router_service_pb2.DESCRIPTOR,
)

NAMES: tuple[str, ...] = tuple(
    service.full_name for file in _FILES for service in file.services_by_name.values()
)
