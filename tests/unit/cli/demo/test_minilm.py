"""The demo's sentence embeddings: the pooled graph computes what the model's card defines."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from services.cli.adapters import settings_file
from services.cli.demo import minilm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported file."""
    return minilm.export(tmp_path_factory.mktemp("minilm"))


def _feeds(text: str) -> dict[str, npt.NDArray[np.int64]]:
    encoded = minilm.tokenizer().encode(text)
    return {
        "input_ids": np.array([encoded.ids]),
        "attention_mask": np.array([encoded.attention_mask]),
        "token_type_ids": np.array([encoded.type_ids]),
    }


def test_pooling_is_mean_then_l2(model: Path) -> None:
    """The added nodes equal numpy's mean over tokens, divided by its length."""
    packaged = onnxruntime.InferenceSession(minilm.packaged_model())
    feeds = _feeds("The cat sits on the mat.")
    (tokens,) = packaged.run(None, feeds)
    mean = tokens[0].mean(axis=0)
    (embedding,) = onnxruntime.InferenceSession(model).run(["sentence_embedding"], feeds)
    np.testing.assert_allclose(embedding[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_like_sentences_are_closer(model: Path) -> None:
    """A paraphrase is nearer than an unrelated sentence."""
    session = onnxruntime.InferenceSession(model)
    cat, kitten, market = (
        session.run(None, _feeds(text))[0][0]
        for text in (
            "A cat sleeps on the sofa.",
            "A kitten is napping on the couch.",
            "Shares fell sharply after the announcement.",
        )
    )
    assert cat @ kitten > 0.6 > 0.3 > cat @ market


def test_settings_pad_every_input(tmp_path: Path) -> None:
    """As `models push --settings` reads them: all three inputs along their tokens, the mask with 0."""
    path = minilm.settings(tmp_path)
    padded = settings_file.parse(path.read_text(), str(path)).padded_inputs
    assert [(p.name, p.axis, p.mask) for p in padded] == [
        ("input_ids", 1, False),
        ("attention_mask", 1, True),
        ("token_type_ids", 1, False),
    ]
