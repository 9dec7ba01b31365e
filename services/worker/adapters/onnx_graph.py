"""What a graph's operators say about a model: whether its runs take as long as their rows say."""

from collections.abc import Container, Iterable

import onnx

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
_FLOW = ("Loop", "Scan", "If", "SequenceMap")
# Operators whose inputs, from this one on, say how large their output is: as constants they are the same in each run.
_SIZED = {
    "Range": 0,
    "ConstantOfShape": 0,
    "HannWindow": 0,
    "HammingWindow": 0,
    "BlackmanWindow": 0,
    "MelWeightMatrix": 0,
    "Expand": 1,
    "Tile": 1,
    "OneHot": 1,
    "Pad": 1,
    "Resize": 1,
    "Upsample": 1,
    "CenterCropPad": 1,
    "AffineGrid": 1,
    "Col2Im": 1,
    "DFT": 1,
    "STFT": 1,
    "CropAndResize": 1,
    "MaxUnpool": 2,
}


def is_steady(model: onnx.ModelProto) -> bool:
    """Whether no operator repeats, chooses or grows by the values of its inputs; what is not known does."""
    functions = {(function.domain, function.name) for function in model.functions}
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    constants -= {value.name for value in graph.input}  # a caller may give another value
    return _are_steady(graph.node, constants, functions) and all(
        _are_steady(function.node, (), functions) for function in model.functions
    )


def _are_steady(
    nodes: Iterable[onnx.NodeProto],
    initializers: Iterable[str],
    functions: Container[tuple[str, str]],
) -> bool:
    constants = {""}.union(initializers)  # "": an input that is left out
    for node in nodes:
        if (node.domain, node.op_type) not in functions and node.domain not in _DOMAINS:
            return False
        if node.op_type in _FLOW or "Sequence" in node.op_type or "Optional" in node.op_type:
            return False
        if any(a.HasField("g") or a.graphs for a in node.attribute):  # also BeamSearch and others
            return False
        if node.op_type == "Constant":
            constants.update(node.output)
        elif not constants.issuperset(node.input[_SIZED.get(node.op_type, len(node.input)) :]):
            return False
    return True
