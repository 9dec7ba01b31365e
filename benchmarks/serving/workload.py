"""The two models, fixed requests for them, and what bare ONNX Runtime answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from benchmarks import mlp
from services.cli.demo import minilm

Array = NDArray[Any]
_SEED = 20_261_130
_REQUESTS = 64
_SHORTEST, _MEDIAN, _LONGEST = 8, 28, 128  # tokens
_SPREAD = 0.6  # of the logarithm of lengths
_WORDS = (1_996, 29_000)  # ids of whole words in the tokenizer's vocabulary
_FIRST, _LAST = 101, 102  # [CLS], [SEP]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One model with requests of one row and the right answers."""

    name: str
    file: Path
    output: str
    requests: tuple[dict[str, Array], ...]
    answers: tuple[Array, ...]
    tolerance: float  # largest difference of a right value

    def is_right(self, number: int, answer: Array) -> bool:
        """Whether it is the answer to this request."""
        right = self.answers[number]
        if answer.size != right.size:
            return False
        return bool(np.abs(answer.reshape(right.shape) - right).max() <= self.tolerance)

    def wrong(self, answers: Iterable[tuple[int, Array]], *, shift: int = 0) -> int:
        """How many are not; with `shift`, each is held against another request's, so all should be."""
        count = len(self.requests)
        return sum(not self.is_right((number + shift) % count, one) for number, one in answers)

    def describe(self) -> str:
        """One line for a person."""
        sizes = sorted(next(iter(request.values())).shape[-1] for request in self.requests)
        if sizes[0] == sizes[-1]:
            return f"{self.name}: {len(sizes)} requests of {sizes[0]} values"
        mean = sum(sizes) / len(sizes)
        return (
            f"{self.name}: {len(sizes)} requests of {sizes[0]} to {sizes[-1]} tokens,"
            f" median {sizes[len(sizes) // 2]}, mean {mean:.0f}"
        )


def make(name: str, folder: Path) -> Workload:
    """Write a model into `folder` and compute its answers; `name` is one of `NAMES`."""
    return _MAKERS[name](folder)


def _mlp(folder: Path) -> Workload:
    file = folder / "mlp.onnx"
    if not file.exists():
        file.write_bytes(mlp.graph())
    rows = np.random.default_rng(_SEED + 1).normal(size=(_REQUESTS, 1, mlp.FEATURES))
    requests = tuple({"features": row.astype(np.float32)} for row in rows)
    answers = _answers(file, "probability", requests)
    return Workload(
        name="mlp",
        file=file,
        output="probability",
        requests=requests,
        answers=answers,
        tolerance=1e-5,
    )


def _minilm(folder: Path) -> Workload:
    file = folder / "minilm.onnx"
    if not file.exists():
        minilm.export(folder)
    draw = np.random.default_rng(_SEED + 2)
    lengths = np.exp(draw.normal(np.log(_MEDIAN), _SPREAD, _REQUESTS)).round().astype(int)
    lengths = lengths.clip(_SHORTEST, _LONGEST)
    lengths[0], lengths[1] = _SHORTEST, _LONGEST
    requests = tuple(_sentence(draw, int(length)) for length in draw.permutation(lengths))
    return Workload(
        name="minilm",
        file=file,
        output="sentence_embedding",
        requests=requests,
        answers=_answers(file, "sentence_embedding", requests),
        tolerance=1e-3,
    )


def _sentence(draw: np.random.Generator, length: int) -> dict[str, Array]:
    ids = draw.integers(*_WORDS, size=(1, length)).astype(np.int64)
    ids[0, 0], ids[0, -1] = _FIRST, _LAST
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }


def _answers(file: Path, output: str, requests: tuple[dict[str, Array], ...]) -> tuple[Array, ...]:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return tuple(session.run([output], request)[0] for request in requests)


_MAKERS = {"mlp": _mlp, "minilm": _minilm}
NAMES = tuple(_MAKERS)
