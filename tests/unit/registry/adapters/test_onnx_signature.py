"""Signatures out of ONNX files, and files that are refused."""

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from services.registry.adapters.onnx_signature import ModelError, read_signature
from services.registry.domain.model import Signature, TensorSpec

SIZES = {"model.onnx": 1, "weights.bin": 100, "sub/w": 8}


def value(
    name: str, kind: int = TensorProto.FLOAT, shape: object = ("n", 3)
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)  # type: ignore[arg-type] # wrong ones too


def external(location: str, name: str = "w", **entries: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def model(
    inputs: tuple[onnx.ValueInfoProto, ...] = (value("x"),),
    outputs: tuple[onnx.ValueInfoProto, ...] = (value("y"),),
    initializers: tuple[TensorProto, ...] = (),
    nodes: tuple[onnx.NodeProto, ...] = (helper.make_node("Identity", ["x"], ["y"]),),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


GOOD = model().SerializeToString()


def read(
    tmp_path: Path, content: bytes, sizes: Mapping[str, int] = SIZES, name: str = "model.onnx"
) -> Signature:
    location = tmp_path / "blob"
    location.write_bytes(content)
    return read_signature(name, location, sizes)


def refused(tmp_path: Path, content: bytes, name: str = "model.onnx") -> str:
    with pytest.raises(ModelError) as error:
        read(tmp_path, content, name=name)
    return str(error.value)


def test_the_signature_is_read(tmp_path: Path) -> None:
    """Inputs are graph inputs without initializers; free and unknown dimensions are -1."""
    made = model(
        inputs=(value("x", TensorProto.INT64, ("n", None, 3)), value("w")),
        outputs=(value("y", TensorProto.STRING, ()), value("z", TensorProto.BFLOAT16, (0,))),
        initializers=(helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]),),
    )
    signature = read(tmp_path, made.SerializeToString())
    assert signature.inputs == (TensorSpec("x", "INT64", (-1, -1, 3)),)
    assert signature.outputs == (TensorSpec("y", "BYTES", ()), TensorSpec("z", "BF16", (0,)))


def test_an_output_without_shape_promises_nothing(tmp_path: Path) -> None:
    """An output of unknown rank is taken as of any size."""
    made = model(outputs=(value("y", shape=None),)).SerializeToString()
    assert read(tmp_path, made).outputs == (TensorSpec("y", "FP32", (-1,)),)


DATATYPES = {
    "BOOL": "BOOL",
    "UINT8": "UINT8",
    "UINT16": "UINT16",
    "UINT32": "UINT32",
    "UINT64": "UINT64",
    "INT8": "INT8",
    "INT16": "INT16",
    "INT32": "INT32",
    "INT64": "INT64",
    "FLOAT16": "FP16",
    "FLOAT": "FP32",
    "DOUBLE": "FP64",
    "BFLOAT16": "BF16",
    "STRING": "BYTES",
}


@pytest.mark.parametrize("name", sorted(TensorProto.DataType.keys()))
def test_every_element_type(tmp_path: Path, name: str) -> None:
    """All datatypes of the protocol are mapped; every other one is refused by its name."""
    kind = TensorProto.DataType.Value(name)
    content = model(inputs=(value("x", kind),)).SerializeToString()
    if name in DATATYPES:
        assert read(tmp_path, content).inputs[0].datatype == DATATYPES[name]
    else:
        assert f"element type {name}" in refused(tmp_path, content)


def a_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x", "y")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(pickle.dumps({"a": [1, 2]}), "begins like a pickle", id="pickle"),
        pytest.param(a_zip(), "begins like a zip archive", id="zip"),
        pytest.param(b"\x89HDF\r\n\x1a\n", "begins like an HDF5 file", id="hdf5"),
        pytest.param(b"<html>", "begins like HTML", id="html"),
        pytest.param(b"version https://git-lfs.github.com", "Git LFS pointer", id="lfs"),
        pytest.param(b"\xff" * 100, "begins with the bytes ff ff", id="bytes"),
        pytest.param(GOOD[: len(GOOD) // 2], "truncated or damaged", id="truncated"),
        pytest.param(GOOD[:-3], "", id="last bytes missing"),
        pytest.param(onnx.ModelProto().SerializeToString() or b"\x08\x0a", "no graph", id="bare"),
        pytest.param(helper.make_tensor("t", 1, [1], [1.0]).SerializeToString(), "", id="tensor"),
        pytest.param(model(outputs=()).SerializeToString(), "has no output", id="no output"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, content: bytes, text: str) -> None:
    """The refusal says what was found."""
    assert text in refused(tmp_path, content)


def test_random_bytes_are_no_model(tmp_path: Path) -> None:
    """However the bytes fall, they are refused, never a crash."""
    for size in (1, 2, 3, 10, 100, 10_000):
        for _ in range(20):
            assert refused(tmp_path, os.urandom(size))


def test_truncation_anywhere_is_refused(tmp_path: Path) -> None:
    """A model that ends before its end is refused, wherever it ends."""
    for end in range(len(GOOD)):
        assert refused(tmp_path, GOOD[:end])


def test_a_file_over_protobufs_limit_is_refused(tmp_path: Path) -> None:
    """2 GiB and more is refused by its size, unread."""
    location = tmp_path / "blob"
    with location.open("wb") as sparse:
        sparse.truncate(2**31)
    with pytest.raises(ModelError, match="at most 2147483647"):
        read_signature("model.onnx", location, SIZES)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (helper.make_value_info("x", onnx.TypeProto()), "value without type"),
        (
            helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None),
            "sequence_type; allowed: tensors; export classifiers with zipmap off",
        ),
        (value("x", shape=None), "input 'x' has no shape"),
    ],
)
def test_inputs_that_are_no_tensors(tmp_path: Path, wrong: onnx.ValueInfoProto, text: str) -> None:
    """The refusal names the input."""
    assert text in refused(tmp_path, model(inputs=(wrong,)).SerializeToString())


def with_external(tensor: TensorProto) -> bytes:
    return model(initializers=(tensor,)).SerializeToString()


@pytest.mark.parametrize(
    "tensor",
    [
        external("weights.bin"),
        external("./weights.bin", offset="10", length="90"),
        external("sub/w", offset="8"),
        external("sub//w"),
    ],
)
def test_external_data_that_is_declared(tmp_path: Path, tensor: TensorProto) -> None:
    """Within a declared file, it passes."""
    assert read(tmp_path, with_external(tensor)).outputs


@pytest.mark.parametrize(
    ("location", "entries", "text"),
    [
        ("../secret", {}, "'../secret'; allowed: a relative path to a declared file"),
        ("sub/../../secret", {}, "allowed: a relative path"),
        ("sub/../weights.bin", {}, "allowed: a relative path"),
        ("/etc/passwd", {}, "'/etc/passwd'; allowed: a relative path"),
        ("C:\\weights", {}, "allowed: a relative path"),
        ("file:weights.bin", {}, "allowed: a relative path"),
        ("a\0b", {}, "allowed: a relative path"),
        ("", {}, "allowed: a relative path"),
        ("other.bin", {}, "declares no file 'other.bin'"),
        ("weights.bin", {"offset": "101"}, "0 bytes from offset 101"),
        ("weights.bin", {"offset": "1", "length": "100"}, "which has 100 bytes"),
        ("weights.bin", {"offset": "-1"}, "has offset '-1'"),
        ("weights.bin", {"length": "1e3"}, "has length '1e3'"),
        ("weights.bin", {"length": "9" * 19}, "has length"),
    ],
)
def test_external_data_that_is_refused(
    tmp_path: Path, location: str, entries: dict[str, str], text: str
) -> None:
    """Outside of the artifact or of the file, or not a number: refused, naming the tensor."""
    message = refused(tmp_path, with_external(external(location, **entries)))
    assert "external data of tensor 'w'" in message
    assert text in message


def test_external_data_is_relative_to_the_model(tmp_path: Path) -> None:
    """A model in a folder finds its data beside it, not in the artifact's root."""
    sizes = {"sub/model.onnx": 1, "sub/w": 8}
    assert read(tmp_path, with_external(external("w")), sizes, "sub/model.onnx").outputs
    with pytest.raises(ModelError, match="declares no file 'sub/sub/w'"):
        read(tmp_path, with_external(external("sub/w")), sizes, "sub/model.onnx")


def in_constant(bad: TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["c"], value=bad)
    return model(nodes=(constant, helper.make_node("Identity", ["x"], ["y"])))


def in_subgraph(bad: TensorProto) -> onnx.ModelProto:
    branch = helper.make_graph([], "branch", [], [value("b")], [bad])
    inner = helper.make_node("If", ["c"], ["b"], then_branch=branch, else_branch=branch)
    middle = helper.make_graph([inner], "middle", [], [value("b")])
    return model(
        nodes=(helper.make_node("If", ["c"], ["y"], then_branch=middle, else_branch=middle),)
    )


def in_function(bad: TensorProto) -> onnx.ModelProto:
    made = model()
    constant = helper.make_node("Constant", [], ["c"], value=bad)
    opset = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("d", "f", [], ["c"], [constant], opset))
    return made


def in_sparse(bad: TensorProto) -> onnx.ModelProto:
    made = model()
    made.graph.sparse_initializer.add().values.CopyFrom(bad)
    return made


def in_training(bad: TensorProto) -> onnx.ModelProto:
    made = model()
    made.training_info.add().initialization.initializer.append(bad)
    return made


@pytest.mark.parametrize("place", [in_constant, in_subgraph, in_function, in_sparse, in_training])
def test_external_data_is_found_everywhere(
    tmp_path: Path, place: Callable[[TensorProto], onnx.ModelProto]
) -> None:
    """No corner of a model hides a tensor that points outside."""
    bad = external("../secret")
    assert "'../secret'" in refused(tmp_path, place(bad).SerializeToString())


def test_external_data_without_the_flag_is_checked_too(tmp_path: Path) -> None:
    """A tensor that names a file is checked even if it doesn't say that its data is external."""
    bad = external("../secret")
    bad.data_location = TensorProto.DEFAULT
    assert "'../secret'" in refused(tmp_path, with_external(bad))
