"""A version's files with all that the registry would say about them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx
from inferplane.registry.v1 import model_pb2

from tests.models.build import ONNX_KINDS

_NAMES: dict[int, str] = {kind: name for name, kind in ONNX_KINDS.items()}


@dataclass(frozen=True, slots=True)
class Artifact:
    """Bytes by path, and the signature of the graph among them."""

    files: Mapping[str, bytes]
    inputs: tuple[model_pb2.TensorSpec, ...]
    outputs: tuple[model_pb2.TensorSpec, ...]
    format: model_pb2.Format.ValueType = model_pb2.FORMAT_ONNX

    def message(self, name: str, settings: model_pb2.VersionSettings) -> model_pb2.ModelVersion:
        """The version as a READY one."""
        files = [
            model_pb2.ArtifactFile(
                path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
            )
            for path, data in sorted(self.files.items())
        ]
        digest = hashlib.sha256(
            "\n".join(f"{f.path} {f.size_bytes} {f.sha256}" for f in files).encode()
        )
        return model_pb2.ModelVersion(
            name=name,
            state=model_pb2.VERSION_STATE_READY,
            format=self.format,
            files=files,
            digest=digest.hexdigest(),
            size_bytes=sum(f.size_bytes for f in files),
            inputs=self.inputs,
            outputs=self.outputs,
            settings=settings,
        )


def of_model(graph: bytes, **others: bytes) -> Artifact:
    """An artifact whose signature is what the graph says."""
    parsed = onnx.load_model_from_string(graph).graph
    return Artifact({"model.onnx": graph, **others}, _specs(parsed.input), _specs(parsed.output))


def of_bytes(data: bytes) -> Artifact:
    """Something that is no model, with the signature of one."""
    spec = model_pb2.TensorSpec(name="x", datatype="FP32", shape=[-1])
    out = model_pb2.TensorSpec(name="y", datatype="FP32", shape=[-1])
    return Artifact({"model.onnx": data}, (spec,), (out,))


def _specs(values: Iterable[onnx.ValueInfoProto]) -> tuple[model_pb2.TensorSpec, ...]:
    return tuple(
        model_pb2.TensorSpec(
            name=value.name,
            datatype=_NAMES[value.type.tensor_type.elem_type],
            shape=[
                d.dim_value if d.HasField("dim_value") else -1
                for d in value.type.tensor_type.shape.dim
            ],
        )
        for value in values
    )
