"""Whether memory stays flat: models that come and go, shapes that vary, beside ONNX Runtime's defaults in the same run.

Run: .venv/bin/python -m benchmarks.memory [--cycles 100] [--shapes 1000]

Each way is a process of its own (`tests/integration/worker/memory_curve.py`) with the same model (16 MiB of weights),
and the same shapes. The baseline is what the process occupies after the third cycle, and after the third look of the
sweep: by then all code and all parts have been used once. The end must lie within 5 % of it.
Ends with 1 if the worker's way does not.
"""

import argparse
import json
import subprocess
import sys
from itertools import pairwise

from tests.integration.worker.memory_curve import FEW, Curve

_ALLOWED = 1.05
_POINTS = 8  # of a curve that are shown


def measured(cycles: int, shapes: int, *options: str) -> Curve:
    """The curve of one way, from a new process."""
    child = subprocess.run(
        [
            *(sys.executable, "-m", "tests.integration.worker.memory_curve"),
            *("--cycles", str(cycles), "--shapes", str(shapes), *options),
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    return Curve(**json.loads(child.stdout.splitlines()[-1]))


def _shown(values: list[float]) -> str:
    step = max(1, len(values) // _POINTS)
    steepest = max((b - a for a, b in pairwise(values)), default=0.0)
    return " ".join(f"{value:4.0f}" for value in values[::step]) + f" | largest step {steepest:.0f}"


def main() -> None:
    """Measure both ways, print curves and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--shapes", type=int, default=1000)
    options = parser.parse_args()
    ways = {
        "worker": measured(options.cycles, options.shapes),
        "defaults": measured(options.cycles, options.shapes, "--plain"),
    }
    for what, count in (("cycles", options.cycles), ("sweep", options.shapes)):
        print(f"{what}: MiB resident, {count} in all")
        for way, curve in ways.items():
            values = getattr(curve, what)
            ratio, top = values[-1] / values[FEW - 1], max(values) / values[FEW - 1]
            print(f"  {way:9} {_shown(values)} | end/baseline {ratio:.3f}, highest {top:.3f}")
        print(f"  end, defaults / worker: {_end(ways, what):.2f}")
    sys.exit(0 if max(ways["worker"].growth()) <= _ALLOWED else 1)


def _end(ways: dict[str, Curve], what: str) -> float:
    last = {way: getattr(curve, what)[-1] for way, curve in ways.items()}
    return float(last["defaults"] / last["worker"])


if __name__ == "__main__":
    main()
