"""What starting each program costs: CPU time until it listens, or, of probes and commands, until it ends.

Run: nice -n -20 .venv/bin/python -m benchmarks.starts [--rounds 5] [CHECKOUT ...]

Several checkouts are compared: each round starts each program of each of them, one after the other. The first round
only warms up. Servers are alone: a worker without registry listens as well. `again` finds the database that a start
before it has left. The command finds no mesh, and says so.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import orjson
import psutil

from services.worker.adapters import probe_order
from services.worker.adapters.probe_order import ProbeOrder
from tests.models import good
from tests.unit.worker.specs import spec_of_model, write

_ROOT = Path(__file__).parents[1]
_SERVERS = ("registry", "metering", "router", "worker")
_KEEPS = {"registry", "metering"}  # with a database
_COMMAND = [sys.executable, "-m", "services.cli", "endpoints", "list", "--address", "127.0.0.1:9"]


def environment(checkout: Path, state: Path) -> dict[str, str]:
    """Of a process of this checkout whose files lie in `state`."""
    sockets = {
        f"INFERPLANE_{name.upper()}_ADDRESS": f"unix:{state}/{name}.sock" for name in _SERVERS
    }
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    path = f"{checkout}{os.pathsep}{_ROOT / 'generated'}"
    return {**kept, "PYTHONPATH": path, "INFERPLANE_STATE_DIR": f"{state}/state", **sockets}


def listens(name: str, checkout: Path, state: Path) -> float:
    """Seconds of CPU until a server listens."""
    argv = [sys.executable, "-m", f"services.{name}"]
    with subprocess.Popen(
        argv, cwd=checkout, env=environment(checkout, state), stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if b'"event": "listening"' in line:
                    used = psutil.Process(process.pid).cpu_times()
                    return float(used.user + used.system)
            raise SystemExit(f"{name} does not start: {b''.join(said).decode()}")
        finally:
            process.kill()


def ends(argv: list[str], told: bytes, checkout: Path, state: Path) -> float:
    """Seconds of CPU until a process ends."""
    with subprocess.Popen(
        argv,
        cwd=checkout,
        env=environment(checkout, state),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(told)
        process.stdin.close()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def probes(place: Path) -> Mapping[str, tuple[list[str], bytes]]:
    """Processes that end, and what they are told: those that try a small model, and a command."""
    graph = good.affine(1.0)
    write(place, {"model.onnx": graph})
    order = ProbeOrder(
        spec=spec_of_model(graph),
        folder=place,
        intra_op_threads=1,
        execution_providers=("CPUExecutionProvider",),
        max_batch_size=32,
        memory_bytes=0,
        seconds=60.0,
        tune_seconds=0.0,
    )
    question = {
        "model": "model.onnx",
        "locations": {"model.onnx": str(place / "model.onnx")},
        "sizes": {"model.onnx": len(graph)},
        "cpu_seconds": 60,
        "memory_bytes": 2 * 1024**3,
    }
    python = [sys.executable, "-m"]
    return {
        "tensor probe": ([*python, "services.worker.tensor_probe"], probe_order.to_json(order)),
        "onnx probe": (
            [*python, "services.registry.adapters.onnx_probe"],
            orjson.dumps(question),
        ),
        "endpoints list": (_COMMAND, b""),
    }


def one_round(checkout: Path) -> Mapping[str, float]:
    """CPU seconds of each program."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="starts-") as folder:
        state = Path(folder)
        for name in _SERVERS:
            found[name] = listens(name, checkout, state)
            if name in _KEEPS:
                found[f"{name} again"] = listens(name, checkout, state)
        for name, (argv, told) in probes(state / "model").items():
            found[name] = ends(argv, told, checkout, state)
    return found


def main() -> None:
    """Measure and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("checkouts", type=Path, nargs="*", metavar="CHECKOUT")
    arguments = parser.parse_args()
    checkouts = [path.absolute() for path in arguments.checkouts] or [_ROOT]
    seen: defaultdict[tuple[Path, str], list[float]] = defaultdict(list)
    for number in range(arguments.rounds + 1):
        for checkout in checkouts:
            for name, seconds in one_round(checkout).items():
                if number:
                    seen[checkout, name].append(seconds)
    for name in dict.fromkeys(name for _, name in seen):
        medians = (statistics.median(seen[checkout, name]) for checkout in checkouts)
        sys.stdout.write(f"{name:16}" + "".join(f"{median:8.2f}" for median in medians) + "\n")


if __name__ == "__main__":
    main()
