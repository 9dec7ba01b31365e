"""Looks at an artifact's files before a runtime opens them: nothing may point out of the version's folder."""

import stat
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from services.worker.domain.artifact_path import beside, is_inside
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.load_state import LoadError

_EXTERNAL = onnx.TensorProto.EXTERNAL


def check_tree(spec: VersionSpec, folder: Path) -> None:
    """Every declared file is a regular file of its size and of one name; nothing else is there. Raises LoadError."""
    declared = {file.path: file.size for file in spec.files}
    for name in declared:
        if not is_inside(name):
            raise LoadError(f"file path {name!r} leaves the version's folder")
    present = set()
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        name = path.relative_to(folder).as_posix()
        if stat.S_ISDIR(found.st_mode):
            continue
        if not stat.S_ISREG(found.st_mode):
            raise LoadError(
                f"{name!r} is a symlink or no regular file; only regular files are loaded"
            )
        if found.st_nlink != 1:
            raise LoadError(f"{name!r} is a hard link: it has {found.st_nlink} names, allowed is 1")
        if name not in declared:
            raise LoadError(f"{name!r} is not one of the version's files")
        if found.st_size != declared[name]:
            raise LoadError(f"{name!r} has {found.st_size} bytes, registered {declared[name]}")
        present.add(name)
    if missing := sorted(declared.keys() - present):
        raise LoadError(f"{missing[0]!r} is missing")


def check_graph(spec: VersionSpec, folder: Path) -> onnx.ModelProto:
    """The graph can be parsed and names external data only among the version's files: the model. Raises LoadError."""
    if spec.onnx_path is None:
        raise LoadError("the artifact has no file that ends in .onnx")
    declared = {file.path for file in spec.files}
    try:
        model = onnx.load(folder / spec.onnx_path, load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise LoadError(f"{spec.onnx_path!r} is not an ONNX model: {error}") from error
    for tensor in _tensors(model):
        if tensor.data_location != _EXTERNAL:
            continue
        location = next((e.value for e in tensor.external_data if e.key == "location"), "")
        if not is_inside(location) or beside(spec.onnx_path, location) not in declared:
            raise LoadError(
                f"tensor {tensor.name!r} keeps its data at {location[:200]!r}, which is not one of the"
                " version's files; allowed: a declared file, relative, without '..'"
            )
    return model


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: of its graph, of graphs inside nodes, of functions."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)
    for training in model.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        yield attribute.t
        yield from attribute.tensors
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(graph)
