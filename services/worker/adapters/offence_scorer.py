"""How offensive English texts are: the linear model of the package alt-profanity-check, in ONNX Runtime."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import orjson

from services.worker.adapters.offence_files import GRAPH, INPUT, OUTPUT, WORD, WORDS
from services.worker.ports.scorer import Scores

_LABEL = "offensive"
_AT_ONCE = 32  # texts; each is a row of all words
_ERRORS_ONLY = 3  # of ONNX Runtime's log

_word = re.compile(WORD)


class OffenceScorer:
    """`Scorer` with one label."""

    labels = (_LABEL,)

    def __init__(self, folder: Path) -> None:
        """Load what `scorer_build` wrote."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        self._session = onnxruntime.InferenceSession(
            str(folder / GRAPH), options, providers=["CPUExecutionProvider"]
        )
        self._words: dict[str, int] = orjson.loads((folder / WORDS).read_bytes())

    def score(self, texts: Sequence[str]) -> Sequence[Scores]:
        """See `Scorer`; a text without known words has the score of nothing, and empty texts have 0."""
        scores: list[Scores] = []
        for first in range(0, len(texts), _AT_ONCE):
            some = texts[first : first + _AT_ONCE]
            (probabilities,) = self._session.run([OUTPUT], {INPUT: self._counts(some)})
            scores += [
                {_LABEL: float(of[1]) if text.strip() else 0.0}
                for text, of in zip(some, probabilities, strict=True)
            ]
        return scores

    def _counts(self, texts: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        counts = np.zeros((len(texts), len(self._words)), np.float32)
        for row, text in zip(counts, texts, strict=True):
            for word in _word.findall(text.lower()):
                place = self._words.get(word)
                if place is not None:
                    row[place] += 1
        return counts
