"""What the peers' own programs share, in any peer's environment: settings, ONNX Runtime sessions, joining rows.

It lies in a folder of its own because the programs beside it are named like the packages that they import.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]
ROW: dict[str, dict[str, Any]] = {
    "mlp": {"features": np.float32},
    "minilm": {"input_ids": np.int64, "attention_mask": np.int64, "token_type_ids": np.int64},
}
OUTPUTS = {"mlp": ("probability", 1), "minilm": ("sentence_embedding", 384)}


@dataclass(frozen=True)
class Settings:
    """What the benchmark asks of a peer."""

    port: int
    models: Path  # folder of NAME.onnx
    workers: int = 1  # processes or instances for each model
    threads: int = 1  # of ONNX Runtime within a run
    fronts: int = 1  # processes that take calls, where that is apart from workers
    window_ms: int = 1  # longest wait for company
    batch: Mapping[str, int] | None = None  # most rows at once, by model; 1: no batching

    def most_rows(self, model: str) -> int:
        """Of one run."""
        return (self.batch or {}).get(model, 32)


def settings() -> Settings:
    """From the environment, where the benchmark put them."""
    given = json.loads(os.environ["BENCHMARK_SETTINGS"])
    return Settings(**{**given, "models": Path(given["models"])})


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def here() -> str:
    """The folder that the benchmark made for this peer."""
    return str(Path.cwd())


def session(given: Settings, model: str) -> onnxruntime.InferenceSession:
    """One session as every peer has it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        str(given.models / f"{model}.onnx"), options, providers=["CPUExecutionProvider"]
    )


def run(session: onnxruntime.InferenceSession, model: str, feeds: Mapping[str, Array]) -> Array:
    """The model's one output."""
    output: Array = session.run([OUTPUTS[model][0]], dict(feeds))[0]
    return output


def join(model: str, rows: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Rows as one batch in the order in which they came; shorter ones are padded with zeros at the end."""
    if len(rows) == 1:
        return {name: rows[0][name].reshape(1, -1) for name in ROW[model]}
    joined = {}
    for name, kind in ROW[model].items():
        longest = max(row[name].size for row in rows)
        batch = np.zeros((len(rows), longest), kind)
        for at, row in enumerate(rows):
            batch[at, : row[name].size] = row[name].reshape(-1)
        joined[name] = batch
    return joined


def of_bytes(model: str, data: bytes) -> dict[str, Array]:
    """A row from the bytes of its inputs, one after the other, equally long."""
    kinds = ROW[model]
    size = len(data) // len(kinds)
    return {
        name: np.frombuffer(data[at * size : (at + 1) * size], kind)
        for at, (name, kind) in enumerate(kinds.items())
    }


def of_lists(model: str, lists: Mapping[str, Sequence[float]]) -> dict[str, Array]:
    """A row from JSON."""
    return {name: np.asarray(lists[name], kind) for name, kind in ROW[model].items()}
