"""What a process occupies while models come and go and shapes vary: `python -m tests.integration.worker.memory_curve`.

Loads, runs and gives back with the worker's own parts, or (`--plain`) with sessions as ONNX Runtime makes them by
default. Prints one JSON object of MiB. A value is taken when nothing runs: after a model has gone, after some shapes.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from services.worker.adapters.onnx_runtime import onnxruntime
from services.worker.adapters.onnx_session import OnnxSessionLoader
from services.worker.adapters.runtime_memory import RuntimeMemory
from services.worker.domain.assignment import VersionSpec
from services.worker.drivers.upkeep import Upkeep
from services.worker.ports.session import Session
from tests.models.wide import WIDTH, steps
from tests.unit.worker.specs import spec_of_model, write

_CPU = "CPUExecutionProvider"
_ROWS, _STEPS = 8, 256  # the largest shape
_LOOKS = 20  # values of a sweep
FEW = 3  # cycles, and looks, after which everything has been used once


@dataclass(frozen=True, slots=True)
class Curve:
    """MiB after each cycle, and at each look of the sweep."""

    cycles: list[float]
    sweep: list[float]

    def growth(self) -> tuple[float, float]:
        """The last value of each by the value after the first few."""
        return self.cycles[-1] / self.cycles[FEW - 1], self.sweep[-1] / self.sweep[FEW - 1]


class _Plain:
    """Sessions as they come, and nothing given back."""

    def __init__(self) -> None:
        self._meter = RuntimeMemory(0)

    def load(self, spec: VersionSpec, folder: Path) -> "_PlainSession":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = str(folder / (spec.onnx_path or ""))
        return _PlainSession(onnxruntime.InferenceSession(path, options, providers=[_CPU]))

    def resident(self) -> int:
        return self._meter.resident()

    def look(self) -> None:
        """Nothing is done."""

    def pass_time(self) -> None:
        """Nothing is done."""


class _PlainSession:
    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session

    def run(self, feeds: dict[str, np.ndarray], outputs: list[str]) -> object:
        return self._session.run(outputs, feeds)


class _Kept:
    """The worker's parts."""

    def __init__(self) -> None:
        self._memory = RuntimeMemory(1 << 30)
        self._upkeep = Upkeep(self._memory)
        self._loader = OnnxSessionLoader(
            intra_op_threads=1, execution_providers=(_CPU,), memory=self._memory
        )

    def load(self, spec: VersionSpec, folder: Path) -> Session:
        return self._loader.load(spec, folder)

    def resident(self) -> int:
        return self._memory.resident()

    def look(self) -> None:
        """What the worker does each second."""
        asyncio.run(self._upkeep.look())

    def pass_time(self) -> None:
        """What it does when ten seconds have passed and it has grown."""
        self._memory.release()


def _feeds(rows: int, length: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, length, WIDTH), np.float32)}


def curve(parts: "_Plain | _Kept", folder: Path, cycles: int, shapes: int) -> Curve:
    """All of it with one set of parts."""
    graph = steps()
    write(folder, {"model.onnx": graph})
    spec = spec_of_model(graph)
    chosen = random.Random(7)
    after = []
    for _ in range(cycles):
        session = parts.load(spec, folder)
        for rows in (1, _ROWS):
            session.run(_feeds(rows, _STEPS), ["y"])
        del session
        gc.collect()
        parts.look()
        after.append(parts.resident() / 2**20)
    session = parts.load(spec, folder)
    sweep = []
    for number in range(shapes):
        session.run(_feeds(chosen.randint(1, _ROWS), chosen.randint(1, _STEPS)), ["y"])
        if (number + 1) % max(1, shapes // _LOOKS) == 0:
            parts.pass_time()
            sweep.append(parts.resident() / 2**20)
    return Curve(after, sweep)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--shapes", type=int, default=1000)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    parts = _Plain() if options.plain else _Kept()
    with tempfile.TemporaryDirectory() as folder:
        found = curve(parts, Path(folder), options.cycles, options.shapes)
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
