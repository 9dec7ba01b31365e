"""The demo's digits: two real versions, the second better, both exact after export."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from services.cli.demo import digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for both exports."""
    return tmp_path_factory.mktemp("digits")


def _accuracy(path: Path) -> float:
    session = onnxruntime.InferenceSession(path)
    assert [(i.name, i.type) for i in session.get_inputs()] == [("image", "tensor(float)")]
    labels, probabilities = session.run(
        ["label", "probabilities"], {"image": digits.load().held_out_images}
    )
    assert probabilities.shape == (len(labels), 10)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), labels)
    return float((labels == digits.load().held_out_labels).mean())


def test_second_version_is_clearly_better(folder: Path) -> None:
    """On images that neither has seen, version 1 is usable and version 2 is better."""
    first, second = (_accuracy(digits.export(v, folder)) for v in ("1", "2"))
    assert 0.7 < first < 0.9
    assert second > 0.95


def test_export_is_reproducible(folder: Path) -> None:
    """Exporting again gives the same bytes, so that the same push is the same artifact."""
    before = digits.export("1", folder).read_bytes()
    assert digits.export("1", folder).read_bytes() == before
