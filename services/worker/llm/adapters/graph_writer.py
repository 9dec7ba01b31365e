"""Writes an ONNX graph: nodes are kept, weights go to a file beside it as they come.

So no more than one weight is in memory, and a runtime maps the file: starting is quick, and all processes of a machine
share its pages.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx
from onnx import TensorProto, helper

from services.worker.llm.adapters.graph_names import GRAPH_FILE, WEIGHTS_FILE
from services.worker.llm.domain.layer_ir import Array

_OPSET = 21
_IR_VERSION = 10
_ALIGNMENT = 4096  # what can be mapped
_INLINE = 1024  # bytes: smaller ones stand in the graph itself

Dims = Sequence[int | str]


class GraphWriter:
    """One graph in one folder; a context manager that closes the file of weights."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._weights = (folder / WEIGHTS_FILE).open("wb")
        self._nodes: list[onnx.NodeProto] = []
        self._initialisers: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._names = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._weights.close()

    def input(self, name: str, dtype: Any, dims: Dims) -> str:
        """A graph's input; strings are free dimensions."""
        self._inputs.append(helper.make_tensor_value_info(name, _onnx_type(dtype), list(dims)))
        return name

    def output(self, name: str, dtype: Any, dims: Dims) -> str:
        """A graph's output, which some node has made."""
        self._outputs.append(helper.make_tensor_value_info(name, _onnx_type(dtype), list(dims)))
        return name

    def weight(self, name: str, array: Array) -> str:
        """A constant; the same name twice is the same constant."""
        if name in self._initialisers:
            return name
        array = np.ascontiguousarray(array)
        tensor = TensorProto(name=name, data_type=_onnx_type(array.dtype), dims=array.shape)
        if array.nbytes < _INLINE:
            tensor.raw_data = array.tobytes()
        else:
            _place(tensor, self._append(array), array.nbytes)
        self._initialisers[name] = tensor
        return name

    def node(self, kind: str, inputs: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        """The one output of a new node. Inputs that are left out are empty."""
        return self.nodes(kind, inputs, ("",), domain=domain, **attributes)[0]

    def nodes(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str | None],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[str]:
        """The outputs of a new node, named as given; empty names are chosen here, None is left out."""
        self._names += 1
        stem = f"{kind}_{self._names}"
        names = [
            "" if name is None else name or f"{stem}_{place}" for place, name in enumerate(outputs)
        ]
        self._nodes.append(
            helper.make_node(kind, list(inputs), names, name=stem, domain=domain, **attributes)
        )
        return names

    def rename(self, output: str, name: str) -> None:
        """Call an output of the last node by another name; nobody has used it yet."""
        outputs = self._nodes[-1].output
        outputs[list(outputs).index(output)] = name

    def save(self) -> None:
        """Write the graph; its weights lie in their file already."""
        graph = helper.make_graph(
            self._nodes, "text", self._inputs, self._outputs, list(self._initialisers.values())
        )
        domains = sorted({node.domain for node in self._nodes})
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(d, 1 if d else _OPSET) for d in domains],
            ir_version=_IR_VERSION,
        )
        (self._folder / GRAPH_FILE).write_bytes(model.SerializeToString())

    def _append(self, array: Array) -> int:
        """Where in the file it begins."""
        self._weights.write(b"\0" * (-self._weights.tell() % _ALIGNMENT))
        begin = self._weights.tell()
        self._weights.write(array.data)
        return begin


def _place(tensor: onnx.TensorProto, offset: int, length: int) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS_FILE), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _onnx_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
