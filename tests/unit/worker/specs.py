"""Version specs of test models, and files in folders."""

import hashlib
from pathlib import Path

from services.rpc.names import VersionName
from services.worker.domain.assignment import ArtifactFile, RunSettings, VersionSpec
from services.worker.domain.signature import Signature, spec_of
from tests.models import artifact


def spec_of_files(files: dict[str, bytes], signature: Signature | None = None) -> VersionSpec:
    """A version with these files."""
    declared = tuple(
        ArtifactFile(path, len(data), hashlib.sha256(data).hexdigest())
        for path, data in sorted(files.items())
    )
    digest = hashlib.sha256(repr(declared).encode()).hexdigest()
    return VersionSpec(
        name=VersionName("m", "1"),
        digest=digest,
        files=declared,
        signature=signature or Signature((), ()),
        settings=RunSettings(),
    )


def spec_of_model(graph: bytes, **others: bytes) -> VersionSpec:
    """A version with this graph and its signature."""
    made = artifact.of_model(graph)
    signature = Signature(
        tuple(spec_of(s.name, s.datatype, tuple(s.shape)) for s in made.inputs),
        tuple(spec_of(s.name, s.datatype, tuple(s.shape)) for s in made.outputs),
    )
    return spec_of_files({"model.onnx": graph, **others}, signature)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Files in a folder."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder
