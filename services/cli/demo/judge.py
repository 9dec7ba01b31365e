"""Judges served answers: tensors must equal what bare ONNX Runtime computes, texts one another."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Without this, importing it leaves telemetry files in the user's cache and temporary folders.
os.putenv("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

Feeds = Mapping[str, npt.NDArray[np.generic]]
_TOLERANCE = 1e-4


@dataclass(slots=True)
class Judge:
    """Sessions by (model, version), and the count of answers that were right and wrong."""

    sessions: dict[tuple[str, str], onnxruntime.InferenceSession] = field(default_factory=dict)
    right: int = 0
    wrong: int = 0

    def learn(self, model: str, version: str, path: Path) -> None:
        """Load the file that was pushed as this version."""
        self.sessions[model, version] = onnxruntime.InferenceSession(path)

    def check(
        self, model: str, version: str, feeds: Feeds, served: Mapping[str, npt.NDArray[np.generic]]
    ) -> bool:
        """Compare the served outputs with bare ones, and count."""
        names = list(served)
        session = self.sessions.get((model, version))
        good = session is not None and all(
            mine.shape == served[name].shape and np.allclose(mine, served[name], atol=_TOLERANCE)
            for name, mine in zip(names, session.run(names, dict(feeds)), strict=True)
        )
        self.right += good
        self.wrong += not good
        return good

    def agree(self, first: str, other: str) -> bool:
        """Compare two answers to the same question, which must be there, and count."""
        good = bool(first) and first == other
        self.right += good
        self.wrong += not good
        return good
