"""The graph for GPUs: its form against the runtime's own schemas, its numbers, and a run where there is a GPU."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from services.worker.adapters.onnx_runtime import onnxruntime, runtime_state
from services.worker.llm.adapters.cuda_graph import with_zero_points
from services.worker.llm.adapters.graph_files import write_graph
from services.worker.llm.adapters.graph_names import CUDA_BLOCK_SIZE, GRAPH_FILE
from services.worker.llm.adapters.model_files import open_weights
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.quantised import QuantisedMatrix
from tests.unit.worker.llm.adapters.graph_steps import request, step, tiny_runner
from tests.unit.worker.llm.reference_forward import reference_logits
from tests.unit.worker.llm.tiny_models import ALL, Tiny, write_tiny

SCHEMAS = {(s.domain, s.name): s for s in runtime_state.get_all_operator_schema()}
families = pytest.mark.parametrize("tiny", ALL.values(), ids=ALL.keys())


@families
def test_every_node_is_as_its_schema_says(tmp_path: Path, tiny: Tiny) -> None:
    """Attributes are known ones, required ones are there; no more inputs and outputs than there are names for."""
    for node in _graph(tmp_path, tiny).node:
        schema = SCHEMAS[node.domain, node.op_type]
        given = {attribute.name for attribute in node.attribute}
        required = {name for name, attribute in schema.attributes.items() if attribute.required}
        assert required <= given <= set(schema.attributes), node.name
        assert len(node.input) <= len(schema.inputs), node.name
        is_any = "Variadic" in str(schema.outputs[-1].option)
        assert is_any or len(node.output) <= len(schema.outputs), node.name
        for value, formal in zip(node.input, schema.inputs, strict=False):
            is_optional = "Optional" in str(formal.option)
            assert value or is_optional, f"{node.name}: {formal.name}"


@families
def test_the_runtime_takes_the_graph_up_to_the_kernels_it_lacks(tmp_path: Path, tiny: Tiny) -> None:
    """Types and shapes add up: what fails on a CPU is that there is no PagedAttention."""
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this runtime has the kernels")
    _graph(tmp_path, tiny)
    with pytest.raises(Exception, match=r"PagedAttention"):
        onnxruntime.InferenceSession(str(tmp_path / GRAPH_FILE), providers=["CPUExecutionProvider"])


def test_attention_gets_blocks_norms_and_windows(tmp_path: Path) -> None:
    """Gemma's layers look back on eight tokens but for each sixth; queries and keys have norms."""
    graph = _graph(tmp_path, ALL["gemma3"])
    nodes = [node for node in graph.node if node.op_type == "PagedAttention"]
    windows = [
        onnx.helper.get_attribute_value(attribute)
        for node in nodes
        for attribute in node.attribute
        if attribute.name == "local_window_size"
    ]
    assert windows == [8, 8, 8, 8, 8, -1, 8]
    names = [formal.name for formal in SCHEMAS["com.microsoft", "PagedAttention"].inputs]
    inputs = dict(zip(names, nodes[0].input, strict=False))
    assert inputs["q_norm_weight"] == "layer0.query_norm"
    assert inputs["attention_metadata"] == "longest"
    cache = next(value for value in graph.input if value.name == inputs["key_cache"])
    assert cache.type.tensor_type.shape.dim[1].dim_value == CUDA_BLOCK_SIZE


def test_zero_points_between_integers_say_the_same_weights() -> None:
    """Q4_1's minima: float zero points are exact but for their own rounding, and a flat block is its value."""
    random = np.random.default_rng(1)
    matrix = QuantisedMatrix(
        q=random.integers(0, 16, (4, 3, 32), dtype=np.uint8),
        scale=random.uniform(0.01, 0.1, (4, 3)).astype(np.float32),
        minimum=random.normal(0, 0.5, (4, 3)).astype(np.float32),
        bits=4,
    )
    matrix.scale[0, 0] = 0.0
    shifted, zeros = with_zero_points(matrix)
    full = shifted.scale[..., None] * (shifted.q - zeros[..., None])
    np.testing.assert_allclose(full.reshape(4, -1), matrix.dequantised(), atol=1e-6)


@pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="there is no CUDA provider here (onnxruntime-gpu on a machine with a GPU)",
)
@families
def test_a_gpu_computes_what_a_plain_forward_pass_does(tmp_path: Path, tiny: Tiny) -> None:
    """As near as 16-bit floats come."""
    settings = EngineSettings(kv_cache_bytes=64 * 1024**2, max_running_requests=4)
    runner = tiny_runner(tmp_path, tiny, Target.CUDA, settings=settings)
    tokens = [token % 200 + 3 for token in range(45)]
    asked = request(runner, tokens)
    step(runner, [(asked, 17)], all_rows=True)
    step(runner, [(asked, 28)], all_rows=True)
    expected = reference_logits(open_weights(tmp_path / "model.gguf"), tokens)
    off = np.array(asked.logits) - expected
    assert np.sqrt((off**2).mean()) < 0.02 * expected.std()


def _graph(folder: Path, tiny: Tiny) -> onnx.GraphProto:
    file = write_tiny(folder / "model.gguf", tiny)
    write_graph(file, folder, Target.CUDA)
    return onnx.load(folder / GRAPH_FILE, load_external_data=False).graph
