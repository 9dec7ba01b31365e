"""Sessions of ONNX Runtime whose graph is one of our operators."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from services.worker.llm.domain.quantised import Array
from tests.unit.worker.llm.adapters.reference_ops import TOKENS, AttentionCase

DOMAIN = "inferplane.llm"
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
}


def session(
    library: Path, operator: str, inputs: Mapping[str, Any], *, threads: int = 1, **attributes: Any
) -> ort.InferenceSession:
    """A session of one node. Inputs are numpy types by name; None leaves an optional one out."""
    known = [
        helper.make_tensor_value_info(name, TYPES[np.dtype(kind)], None)
        for name, kind in inputs.items()
        if kind is not None
    ]
    node = helper.make_node(
        operator,
        [name if kind is not None else "" for name, kind in inputs.items()],
        ["out"],
        domain=DOMAIN,
        **attributes,
    )
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "one", known, [out]),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.register_custom_ops_library(str(library))
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class PagedCache:
    """A cache and the operator over it; computes pieces of requests and keeps what it is told to keep."""

    def __init__(
        self,
        library: Path,
        case: AttentionCase,
        tables: tuple[Array, Array],
        *,
        blocks: int = 64,
        kept: Any = np.float16,
        norms: tuple[Array, Array] | None = None,
        threads: int = 1,
        layers: int = 2,
    ) -> None:
        shape = (layers, 2, blocks, case.kv_heads, TOKENS * case.head_size)
        # What lies in blocks before anyone writes there must not matter.
        self.kv = np.full(shape, np.nan, kept)
        self.tables = tables
        self.norms = norms
        norm = np.float32 if norms is not None else None
        self.session = session(
            library,
            "PagedAttention",
            {
                "qkv": np.float32,
                "kv": kept,
                "starts": np.int32,
                "past": np.int32,
                "blocks": np.int32,
                "cos": np.float32,
                "sin": np.float32,
                "q_norm": norm,
                "k_norm": norm,
            },
            threads=threads,
            num_heads=case.heads,
            kv_num_heads=case.kv_heads,
            layer=case.layer,
            window=case.window,
            softcap=case.softcap,
            scale=case.scale,
            epsilon=case.epsilon,
        )

    def step(self, qkv: Array, counts: list[int], past: list[int], blocks: Array) -> Array:
        """Computes `counts` new tokens of each request, whose rows lie flat in `qkv`."""
        return self.run(
            qkv=qkv,
            starts=np.cumsum([0, *counts]).astype(np.int32),
            past=np.array(past, np.int32),
            blocks=blocks.astype(np.int32),
        )

    def run(self, **changed: Array) -> Array:
        """Runs with exactly these inputs, the cache's own for the rest."""
        inputs = {"kv": self.kv, "cos": self.tables[0], "sin": self.tables[1], **changed}
        if self.norms is not None:
            inputs = {"q_norm": self.norms[0], "k_norm": self.norms[1], **inputs}
        binding = self.session.io_binding()
        for name, array in inputs.items():
            fitting = np.ascontiguousarray(array)
            binding.bind_input(name, "cpu", 0, fitting.dtype, fitting.shape, fitting.ctypes.data)
        binding.bind_output("out", "cpu")
        self.session.run_with_iobinding(binding)
        result: Array = binding.copy_outputs_to_cpu()[0]
        return result
