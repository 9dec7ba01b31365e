"""What an ONNX model takes and gives, read from its protobuf; and what is wrong with one that can't be served."""

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto

from services.registry.domain.model import Signature, TensorSpec

_LARGEST_PROTOBUF = 2**31 - 1  # bytes; protobuf's own limit
_OIP_DATATYPES: Mapping[int, str] = {
    TensorProto.BOOL: "BOOL",
    TensorProto.UINT8: "UINT8",
    TensorProto.UINT16: "UINT16",
    TensorProto.UINT32: "UINT32",
    TensorProto.UINT64: "UINT64",
    TensorProto.INT8: "INT8",
    TensorProto.INT16: "INT16",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.FLOAT16: "FP16",
    TensorProto.FLOAT: "FP32",
    TensorProto.DOUBLE: "FP64",
    TensorProto.BFLOAT16: "BF16",
    TensorProto.STRING: "BYTES",
}
_BEGINNINGS = (
    (b"\x80", "a pickle"),
    (b"PK\x03\x04", "a zip archive (PyTorch, Keras)"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"GGUF", "a GGUF file"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
    (b"<", "HTML or XML"),
    (b"{", "JSON"),
)


class ModelError(Exception):
    """The file is no model that can be served; the text says why, without the file's name."""


def read_signature(model: str, location: Path, sizes: Mapping[str, int]) -> Signature:
    """The signature of a model file; ModelError if it is none that can be served.

    Args:
        model: its path in the artifact.
        location: where its bytes lie.
        sizes: declared files of the artifact, by path.
    """
    proto = _parse(location)
    for tensor in _tensors(proto):
        _check_external_data(model, tensor, sizes)
    graph = proto.graph
    initialized = {tensor.name for tensor in graph.initializer}
    initialized |= {tensor.values.name for tensor in graph.sparse_initializer}
    if not graph.output:
        raise ModelError("its graph has no output; allowed: at least one")
    return Signature(
        inputs=tuple(
            _tensor_spec("input", value) for value in graph.input if value.name not in initialized
        ),
        outputs=tuple(_tensor_spec("output", value) for value in graph.output),
    )


def _parse(location: Path) -> onnx.ModelProto:
    size = location.stat().st_size
    if size == 0:
        raise ModelError("it is empty; allowed: an ONNX model")
    if size > _LARGEST_PROTOBUF:
        raise ModelError(
            f"it has {size} bytes; allowed: at most {_LARGEST_PROTOBUF} (a protobuf's limit),"
            " with larger weights as external data"
        )
    content = location.read_bytes()
    try:
        proto = onnx.ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError(f"it is not an ONNX protobuf: it {_found(content)}") from error
    for field in ("ir_version", "graph"):
        if not proto.HasField(field):
            raise ModelError(f"it is not an ONNX model: no {field}; it {_found(content)}")
    if not proto.opset_import:
        raise ModelError("it is not a complete ONNX model: no opset_import")
    return proto


def _found(content: bytes) -> str:
    for beginning, name in _BEGINNINGS:
        if content.startswith(beginning):
            return f"begins like {name}"
    if content[0] == 0x08:  # a protobuf's field 1 as a number: ir_version
        return "begins like an ONNX model, but is truncated or damaged"
    return f"begins with the bytes {content[:8].hex(' ')}"


def _tensors(root: Message) -> Iterator[TensorProto]:
    """All tensors anywhere in a model: initializers, attributes, subgraphs, functions."""
    pending = [root]
    while pending:
        message = pending.pop()
        if isinstance(message, TensorProto):
            yield message
            continue
        for field, value in message.ListFields():
            if field.type != field.TYPE_MESSAGE:
                continue
            pending.extend(value if field.is_repeated else [value])


def _check_external_data(model: str, tensor: TensorProto, sizes: Mapping[str, int]) -> None:
    if tensor.data_location != TensorProto.EXTERNAL and not tensor.external_data:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"external data of tensor {tensor.name!a}"
    segments = location.split("/")
    if (
        not location
        or location.startswith("/")
        or ".." in segments
        or any(forbidden in location for forbidden in ("\\", "\0", ":"))
    ):
        raise ModelError(
            f"{what} is at {location!a}; allowed: a relative path to a declared file,"
            " without '..', ':' or backslash"
        )
    path = posixpath.normpath(posixpath.join(posixpath.dirname(model), location))
    if path not in sizes:
        raise ModelError(
            f"{what} is at {location!a}, and the version declares no file {path!a};"
            f" declared: {', '.join(sorted(sizes)[:10])}"
        )
    offset = _count(what, "offset", entries.get("offset", "0"))
    length = _count(what, "length", entries.get("length", "0"))
    if offset + length > sizes[path]:
        raise ModelError(
            f"{what} is {length} bytes from offset {offset} of {path!a}, which has {sizes[path]} bytes"
        )


def _count(what: str, key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ModelError(f"{what} has {key} {text[:40]!a}; allowed: a number of bytes")
    return int(text)


def _tensor_spec(side: str, value: onnx.ValueInfoProto) -> TensorSpec:
    what = f"{side} {value.name!a}"
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        hint = (
            "; export classifiers with zipmap off" if kind in {"sequence_type", "map_type"} else ""
        )
        raise ModelError(f"{what} is a {kind or 'value without type'}; allowed: tensors{hint}")
    tensor = value.type.tensor_type
    datatype = _OIP_DATATYPES.get(tensor.elem_type)
    if datatype is None:
        known = tensor.elem_type in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(tensor.elem_type) if known else str(tensor.elem_type)
        raise ModelError(
            f"{what} has element type {name}; allowed: {', '.join(_OIP_DATATYPES.values())}"
        )
    if not tensor.HasField("shape"):
        if side == "input":
            raise ModelError(f"{what} has no shape; allowed: a known number of dimensions")
        return TensorSpec(value.name, datatype, (-1,))  # nothing is promised to who reads it
    return TensorSpec(value.name, datatype, tuple(_dimension(d) for d in tensor.shape.dim))


def _dimension(dimension: onnx.TensorShapeProto.Dimension) -> int:
    fixed = dimension.WhichOneof("value") == "dim_value" and dimension.dim_value >= 0
    return dimension.dim_value if fixed else -1
