"""The `digits` model: handwritten digits, in a weak first version and a better second one.

Trained on scikit-learn's own digits data set (1,797 images of 8x8 with labels); a quarter is held
out, so that the demo can print true labels beside predictions on images that neither version has seen.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

MODEL_ID = "digits"
_WEAK_SAMPLES = 80  # what version 1 gets to see
_SEED = 0


@dataclass(frozen=True, slots=True)
class Digits:
    """Images and their true labels, split in what is trained on and what is held out."""

    train_images: npt.NDArray[np.float32]  # [n, 64], grey values 0 to 16
    train_labels: npt.NDArray[np.int64]  # [n]
    held_out_images: npt.NDArray[np.float32]
    held_out_labels: npt.NDArray[np.int64]


@cache
def load() -> Digits:
    """The data set, split the same way every time."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images.astype(np.float32), labels.astype(np.int64), test_size=0.25, random_state=_SEED
    )
    return Digits(train_x, train_y, test_x, test_y)


def export(version: str, folder: Path) -> Path:
    """Train version "1" (few samples, linear) or "2" (all samples, a small network); write and return its ONNX file.

    Input `image` FP32 [n, 64]; outputs `label` INT64 [n] and `probabilities` FP32 [n, 10].
    """
    digits = load()
    if version == "1":
        images, labels = digits.train_images[:_WEAK_SAMPLES], digits.train_labels[:_WEAK_SAMPLES]
        classifier = LogisticRegression(max_iter=500, random_state=_SEED)
    else:
        images, labels = digits.train_images, digits.train_labels
        classifier = MLPClassifier((64,), max_iter=200, early_stopping=True, random_state=_SEED)
    pipeline = make_pipeline(StandardScaler(), classifier).fit(images, labels)
    model = to_onnx(
        pipeline,
        initial_types=[("image", FloatTensorType([None, 64]))],
        options={"zipmap": False},
    )
    path = folder / f"{MODEL_ID}-{version}.onnx"
    path.write_bytes(model.SerializeToString())
    return path
