"""Whether many callers leave memory and metrics as they are: a whole mesh, each request by another API key.

Run: .venv/bin/python -m benchmarks.bounded_memory [--keys 100000] [--requests 1000000]

Keys are signed with the mesh's own signing key, each for a project of its own. Most requests are answered; some ask for
a model or a method that is not there, under a name of their own. Looks at the resident memory of every process of the
mesh, and at the series that each shows, after the first tenth and at the end: the series must be the same, and no
process may have grown by more than a tenth, or 8 MiB. Ends with 1 otherwise.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import orjson
from inference import open_inference_pb2 as oip

from benchmarks.many_keys import KeyedLoad, Shot
from services.rpc.tcp_ports import free_port
from tests.metering_keys import KeyMint
from tests.models import good

_MODEL = "m"
_LOOKS = 10
_ALLOWED_SHARE, _ALLOWED_BYTES = 0.10, 8 * 2**20
_IN_FLIGHT = 8  # on each connection
_TOLD = 60  # new series
_UNKNOWN_MODEL, _UNKNOWN_METHOD = 8, 9  # last digits of the numbers of such requests


@dataclass(frozen=True, slots=True)
class Look:
    """What processes occupy, in bytes, and the series that each shows, by their names."""

    resident: Mapping[str, int]
    series: Mapping[str, frozenset[str]]


class Mesh:
    """`inferplane up`, and what it shows of itself."""

    def __init__(self, state: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._run = state / "run"
        self._environment = {
            **os.environ,
            "INFERPLANE_STATE_DIR": str(state),
            "INFERPLANE_ADDRESS": self.address,
        }

    def call(self, *words: str) -> None:
        """A command of the command line."""
        command = [sys.executable, "-m", "services.cli", *words]
        subprocess.run(command, env=self._environment, check=True, stdout=sys.stderr)

    def look(self) -> Look:
        """Now."""
        return Look(resident=dict(self._resident()), series=dict(self._series()))

    def _resident(self) -> Iterator[tuple[str, int]]:
        for process in orjson.loads((self._run / "processes.json").read_bytes()):
            pages = int(Path(f"/proc/{process['pid']}/statm").read_text().split()[1])
            yield process["name"], pages * os.sysconf("SC_PAGESIZE")

    def _series(self) -> Iterator[tuple[str, frozenset[str]]]:
        for group in orjson.loads((self._run / "metrics-targets.json").read_bytes()):
            (target,) = group["targets"]
            text = httpx.get(f"http://{target}/metrics", timeout=60).text
            lines = [line for line in text.splitlines() if line and line[0] != "#"]
            yield (
                group["labels"]["process"],
                frozenset(line.rpartition(" ")[0] for line in lines),
            )


@contextmanager
def mesh(folder: Path) -> Iterator[Mesh]:
    """One worker with one small model, behind an edge that asks for keys."""
    running = Mesh(folder / "state")
    port = running.address.rpartition(":")[2]
    running.call("up", "--auth", "required", "--edge-port", port, "--workers", "1", "--detach")
    try:
        file = folder / "model.onnx"
        file.write_bytes(good.identity("FP32"))
        running.call("models", "push", _MODEL, str(file))
        running.call("deploy", f"{_MODEL}@1")
        yield running
    finally:
        running.call("down")


def tokens(state: Path, count: int) -> list[bytes]:
    """Keys of as many projects, signed as metering would."""
    mint = KeyMint.of_folder(state)
    return [
        mint.token(project=f"project-{n}", jti=f"{n:032x}", exp=int(time.time()) + 86_400).encode()
        for n in range(count)
    ]


def shot(number: int, keys: Sequence[bytes]) -> Shot:
    """The request of a number."""
    model, path = _MODEL, "/inference.GRPCInferenceService/ModelInfer"
    if number % 100 == _UNKNOWN_MODEL:
        model = f"model-{number}"
    elif number % 100 == _UNKNOWN_METHOD:
        path = f"/service-{number}/Method"
    asked = oip.ModelInferRequest(model_name=model)
    asked.inputs.add(name="x", datatype="FP32", shape=(1,))
    asked.raw_input_contents.append(np.float32(number).tobytes())
    return Shot(path.encode(), keys[number % len(keys)], asked.SerializeToString())


def measured(running: Mesh, keys: Sequence[bytes], requests: int) -> list[Look]:
    """Looks after each tenth of the requests."""
    running.look()  # what is scraped counts that it was
    looks = []
    load = KeyedLoad(running.address)
    for tenth in range(_LOOKS):
        numbers = range(tenth * requests // _LOOKS, (tenth + 1) * requests // _LOOKS)
        begun = time.perf_counter()
        ended = load.keep((shot(number, keys) for number in numbers), _IN_FLIGHT)
        seconds = time.perf_counter() - begun
        looks.append(running.look())
        sizes = " ".join(f"{name} {of / 2**20:.0f}" for name, of in looks[-1].resident.items())
        print(
            f"{numbers.stop:>9,} requests, {len(numbers) / seconds:,.0f}/s, {dict(ended)}; MiB: {sizes}"
        )
    return looks


def judged(looks: Sequence[Look]) -> bool:
    """Print the first look beside the last; whether nothing has grown."""
    first, last = looks[0], looks[-1]
    is_good = True
    for name, before in first.resident.items():
        grown = last.resident.get(name, 0) - before
        kept = grown <= max(_ALLOWED_SHARE * before, _ALLOWED_BYTES)
        is_good = is_good and kept
        print(
            f"{name:12} {before / 2**20:7.1f} MiB {grown / 2**20:+6.1f}{'' if kept else '  GREW'}"
        )
    for name, known in first.series.items():
        new = sorted(last.series.get(name, frozenset()) - known)
        is_good = is_good and not new
        print(f"{name:12} {len(known):5} series, {len(new)} new {new[:_TOLD]}")
    return is_good


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ip-") as name, mesh(Path(name)) as running:
        begun = time.perf_counter()
        keys = tokens(Path(name) / "state", options.keys)
        print(f"{len(keys):,} keys signed in {time.perf_counter() - begun:.0f} s")
        is_good = judged(measured(running, keys, options.requests))
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
