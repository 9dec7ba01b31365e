"""Records for tests."""

import hashlib
from datetime import UTC, datetime, timedelta

from services.registry.domain.artifact import artifact_digest
from services.registry.domain.endpoint import Endpoint, Target
from services.registry.domain.model import (
    Alias,
    ArtifactFile,
    Format,
    Model,
    ModelVersion,
    VersionState,
)
from services.registry.domain.placement import Placement
from services.registry.domain.worker import LoadState, Worker, WorkerVersion
from services.rpc.names import (
    AliasName,
    EndpointName,
    ModelName,
    PlacementName,
    TargetName,
    VersionName,
    WorkerName,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file(path: str = "model.onnx", content: bytes = b"onnx") -> ArtifactFile:
    return ArtifactFile(path, len(content), sha256(content))


def model(name: str = "m", description: str = "") -> Model:
    return Model(name=ModelName(name), description=description, create_time=NOW, update_time=NOW)


def version(
    name: str = "m@1",
    *,
    state: VersionState = VersionState.READY,
    files: tuple[ArtifactFile, ...] = (file(),),
    age: float = 0,
) -> ModelVersion:
    model_id, _, version_id = name.partition("@")
    return ModelVersion(
        name=VersionName(model_id, version_id),
        state=state,
        format=Format.ONNX,
        files=files,
        digest=artifact_digest(files),
        size_bytes=sum(f.size_bytes for f in files),
        create_time=NOW - timedelta(seconds=age),
        declare_time=NOW - timedelta(seconds=age),
    )


def alias(name: str = "m@champion", to: str = "1") -> Alias:
    model_id, _, alias_id = name.partition("@")
    return Alias(
        name=AliasName(model_id, alias_id),
        version=VersionName(model_id, to),
        create_time=NOW,
        update_time=NOW,
    )


def endpoint(name: str = "e", *targets: TargetName) -> Endpoint:
    return Endpoint(
        name=EndpointName(name),
        targets=tuple(Target(target, 1.0) for target in targets),
        create_time=NOW,
        update_time=NOW,
    )


def placement(pool: str = "default", version_name: str = "m@1") -> Placement:
    model_id, _, version_id = version_name.partition("@")
    return Placement(name=PlacementName(pool, VersionName(model_id, version_id)), create_time=NOW)


def worker(
    name: str = "w1",
    pool: str = "default",
    states: dict[str, LoadState] | None = None,
    *,
    draining: bool = False,
    in_flight: int = 0,
) -> Worker:
    return Worker(
        name=WorkerName(name),
        pool=pool,
        address=f"unix:/run/{name}.sock",
        draining=draining,
        in_flight=in_flight,
        versions=tuple(
            WorkerVersion(version=VersionName(*key.split("@")), state=state)
            for key, state in (states or {}).items()
        ),
    )
