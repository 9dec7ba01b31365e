"""The methods that the edge knows, by how it routes them, and their descriptors for the filters that read bodies."""

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from inference import open_inference_pb2
from inferplane.generation.v1 import generation_service_pb2
from inferplane.oip.v1 import rest_service_pb2
from inferplane.openai.v1 import openai_service_pb2

from services.router.resources import wire

OIP = "inference.GRPCInferenceService"
REST = "inferplane.oip.v1.RestInferenceService"
GENERATION = "inferplane.generation.v1.GenerationService"
OPENAI = "inferplane.openai.v1.OpenAiService"

# Method → its fields that name endpoint and version.
OF_ENDPOINT: dict[str, tuple[str, str]] = {
    f"{OIP}.ModelInfer": ("model_name", "model_version"),
    f"{OIP}.ModelStreamInfer": ("model_name", "model_version"),
    f"{OIP}.ModelReady": ("name", "version"),
    f"{OIP}.ModelMetadata": ("name", "version"),
    f"{OIP}.ModelStatistics": ("name", "version"),
    f"{GENERATION}.Generate": ("model_name", "model_version"),
    f"{GENERATION}.GenerateStream": ("model_name", "model_version"),
    f"{REST}.ModelInfer": ("model_name", "model_version"),
    f"{REST}.ModelReady": ("model_name", "model_version"),
    f"{REST}.ModelMetadata": ("model_name", "model_version"),
    f"{REST}.ModelStatistics": ("model_name", "model_version"),
}
# A stream of calls, routed by its first message.
STREAM = f"{OIP}.ModelStreamInfer"
# Text that is sent as it is made.
TEXT_STREAM = f"{GENERATION}.GenerateStream"
# The same, or all of it at once, in OpenAI's words: `model` in the JSON is the endpoint, or `endpoint@version`.
OF_OPENAI = tuple(f"/{OPENAI}/{method}" for method in ("CreateChatCompletion", "CreateCompletion"))
# Of that service, the other methods are the registry's. What OpenAI's paths begin with, before they are transcoded.
OPENAI_PREFIX = "/v1/"
# Of these, those that name no endpoint if they mean all that a worker has.
OF_ENDPOINT_OR_ANY_WORKER = (f"{OIP}.ModelStatistics", f"{REST}.ModelStatistics")
# Paths that every worker answers alike.
OF_ANY_WORKER = tuple(
    f"/{service}/{method}"
    for service in (OIP, REST)
    for method in ("ServerLive", "ServerReady", "ServerMetadata")
)
# Triton's repository is the registry's, unlike the other methods of these services.
OF_REPOSITORY = tuple(
    f"/{service}/{method}"
    for service in (OIP, REST)
    for method in ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")
)
OF_ANY_WORKER_PREFIX = "/grpc.health.v1.Health/"
OF_REGISTRY_PREFIX = "/inferplane.registry.v1."
# The router also answers reflection, for all that the edge serves.
OF_ROUTER_PREFIXES = (
    "/inferplane.router.v1.",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
)
# Discovery's reading methods; the writing ones are for workers and refused at the edge.
OF_DISCOVERY = (
    "/inferplane.discovery.v1.DiscoveryService/ListWorkers",
    "/inferplane.discovery.v1.DiscoveryService/WatchWorkers",
)
# What only services call among themselves, but for the methods that are listed.
REFUSED_PREFIXES = (
    "/inferplane.discovery.v1.",
    "/inferplane.metering.v1.",
    "/envoy.service.",
)


def path(method: str) -> str:
    """The path of `package.Service.Method`."""
    service, _, name = method.rpartition(".")
    return f"/{service}/{name}"


def descriptors() -> bytes:
    """The FileDescriptorSet of these services, with all that they import."""
    found: dict[str, FileDescriptor] = {}

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        found.setdefault(file.name, file)

    for module in (
        open_inference_pb2,
        rest_service_pb2,
        generation_service_pb2,
        openai_service_pb2,
    ):
        add(module.DESCRIPTOR)
    files = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return wire.serialized(files)
