"""Opening model files: every family becomes layers."""

from pathlib import Path

import numpy as np
import pytest

from services.worker.llm.adapters.model_files import open_weights
from services.worker.llm.domain.layer_ir import as_floats
from tests.unit.worker.llm.reference_forward import reference_logits
from tests.unit.worker.llm.tiny_models import ALL, Tiny, write_tiny


@pytest.mark.parametrize("tiny", ALL.values(), ids=ALL.keys())
def test_every_family_is_opened(tmp_path: Path, tiny: Tiny) -> None:
    """Sizes are those that were written, and layers compute finite logits."""
    weights = open_weights(write_tiny(tmp_path / "tiny.gguf", tiny), exact=True)
    shape = weights.plan.shape
    assert (shape.architecture, shape.layers, shape.heads) == (tiny.family, tiny.layers, tiny.heads)
    assert weights.plan.windows == tiny.architecture.windows
    assert (weights.head() is None) == shape.tied_embedding == tiny.tied
    logits = reference_logits(weights, list(range(3, 30)))
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1


def test_eight_bits_are_near_the_floats(tmp_path: Path) -> None:
    """Float weights are quantised unless they are asked for, and the logits hardly change."""
    file = write_tiny(tmp_path / "tiny.gguf")
    ids = list(range(3, 30))
    exact = reference_logits(open_weights(file, exact=True), ids)
    near = reference_logits(open_weights(file), ids)
    assert not np.array_equal(exact, near)
    assert np.abs(exact - near).mean() < 0.03 * exact.std()


def test_halves_of_heads_are_put_in_order(tmp_path: Path) -> None:
    """Llama's files interleave the halves of queries and keys; what is read has them one after the other."""
    tiny = Tiny(biases=True)
    weights = open_weights(write_tiny(tmp_path / "tiny.gguf", tiny), exact=True)
    same_but_not_turned = Tiny(family="qwen2", biases=True)
    plain = open_weights(write_tiny(tmp_path / "plain.gguf", same_but_not_turned), exact=True)
    stored, read = (
        as_floats(plain.layer(0).query.weights),
        as_floats(weights.layer(0).query.weights),
    )
    head = slice(tiny.head_size, 2 * tiny.head_size)
    assert np.array_equal(read[head][: tiny.head_size // 2], stored[head][0::2])
    assert np.array_equal(read[head][tiny.head_size // 2 :], stored[head][1::2])
    bias, stored_bias = weights.layer(0).key.bias, plain.layer(0).key.bias
    assert bias is not None
    assert stored_bias is not None
    assert np.array_equal(bias[: tiny.head_size // 2], stored_bias[: tiny.head_size : 2])
