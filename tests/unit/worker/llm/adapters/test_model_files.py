"""Opening model files: every family becomes layers."""

from pathlib import Path

import numpy as np
import pytest

from services.modelfiles.tensor_plan import Part, TensorKey
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.model_files import open_model, open_weights
from services.worker.llm.domain.layer_ir import as_floats
from tests.unit.worker.llm.reference_forward import reference_logits
from tests.unit.worker.llm.tiny_folders import write_folder
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


FOLDERS = {name: tiny for name, tiny in ALL.items() if not tiny.rope_factors}


@pytest.mark.parametrize("tiny", FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_is_the_same_model(tmp_path: Path, tiny: Tiny) -> None:
    """The weights of a model of transformers give the logits that its GGUF file gives."""
    ids = list(range(3, 20))
    by_file = open_weights(write_tiny(tmp_path / "tiny.gguf", tiny), exact=True)
    by_folder = open_weights(write_folder(tmp_path / "folder", tiny), exact=True)
    expected, got = reference_logits(by_file, ids), reference_logits(by_folder, ids)
    assert np.abs(got - expected).max() < 1e-4  # Gemma's norms lose a bit on their way by 1
    assert by_folder.plan.shape.tied_embedding == tiny.tied


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    """An infinite scale is found when the layer is read, and the tensor is named."""
    path = write_tiny(tmp_path / "tiny.gguf", Tiny(precision="Q8_0"))
    tensor = open_model(path).file.tensors[TensorKey(Part.DOWN, 1)]
    content = bytearray(path.read_bytes())
    content[tensor.offset : tensor.offset + 2] = b"\x00\x7c"
    path.write_bytes(content)
    weights = open_weights(path)
    weights.layer(0)
    with pytest.raises(LoadError, match=r"'blk\.1\.ffn_down\.weight': values that are not finite"):
        weights.layer(1)
    with pytest.raises(LoadError, match="not finite"):
        open_weights(path, exact=True).layer(1)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """A folder without one, or with two, and files that are something else."""
    with pytest.raises(LoadError, match=r"neither a file that ends in '\.gguf' nor 'config\.json'"):
        open_model(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadError, match="version: 4 bytes at 4, where 0 are left"):
        open_model(tmp_path)
    (tmp_path / "b.gguf").touch()
    with pytest.raises(LoadError, match=r"2 files end in '\.gguf'; allowed: one"):
        open_model(tmp_path)
