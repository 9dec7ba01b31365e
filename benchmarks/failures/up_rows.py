"""What is broken on `up`, each as one act under the load that ends when all is as it was."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.failures.book import Promise
from benchmarks.failures.calls import TENSOR_ENDPOINT
from benchmarks.failures.failure import Act, Failure
from benchmarks.failures.traffic import Traffic
from benchmarks.failures.up_mesh import UpMesh
from tests.models import good

_NUMBERS = itertools.count(2)  # of further versions
_AFTER_LEASES = 1000  # answers: longer than leases last in these runs


def _killed(*programs: str) -> Act[UpMesh]:
    return lambda mesh, _: mesh.kill(*programs)


@contextmanager
def _frozen(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def _freeze(program: str, answers: int) -> Act[UpMesh]:
    def act(mesh: UpMesh, traffic: Traffic) -> None:
        with _frozen(mesh.one(program)):
            traffic.answered(answers)
        mesh.well()

    return act


def _drained(mesh: UpMesh, _: Traffic) -> None:
    worker = mesh.one("worker")
    worker.send_signal(signal.SIGTERM)
    mesh.back("worker", worker.pid)


def _spoilt(spoil: Callable[[Path], None]) -> Act[UpMesh]:
    """A version whose file is spoilt on the registry's disk before any worker has it: told, and never served."""

    def act(mesh: UpMesh, traffic: Traffic) -> None:
        cli, state = mesh.mesh.cli, mesh.mesh.state_dir
        blobs = state / "registry"
        before = set(_files(blobs))
        file = state.with_name("spoilt.onnx")
        number = next(_NUMBERS)
        file.write_bytes(good.affine(float(10 + number)))
        cli("models", "push", f"{TENSOR_ENDPOINT}@{number}", str(file))
        (blob,) = (
            f for f in set(_files(blobs)) - before if f.stat().st_size == len(file.read_bytes())
        )
        blob.chmod(0o600)
        spoil(blob)
        done = cli("deploy", f"{TENSOR_ENDPOINT}@{number}", "--weight", "50", check=False)
        assert done.returncode, "a spoilt version was deployed"
        assert "SHA-256" in done.stderr, done.stderr
        traffic.answered()
        cli("undeploy", f"{TENSOR_ENDPOINT}@{number}")

    return act


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _flip(blob: Path) -> None:
    """One bit is another. In a file of its own: who has mapped the old one reads on (cut short, it would be killed)."""
    raw = bytearray(blob.read_bytes())
    raw[len(raw) // 2] ^= 1
    spoilt = blob.with_name(f"{blob.name}.spoilt")
    spoilt.write_bytes(raw)
    spoilt.replace(blob)


def _exchange(blob: Path) -> None:
    """A good model of the same size, but another: only the digest tells."""
    other = good.affine(99.0)
    assert len(other) == blob.stat().st_size
    blob.write_bytes(other)


def _spoilt_cache(mesh: UpMesh, _: Traffic) -> None:
    """All that workers keep on their disk is spoilt, and one of them has to begin anew from there."""
    kept = mesh.mesh.state_dir / "cache"
    models = [f for f in _files(kept) if f.suffix in {".onnx", ".gguf", ".bin"}]
    assert models, list(_files(kept))
    for file in models:
        file.chmod(0o600)
        _flip(file)
    mesh.kill("worker")


CONTROL = ("router", "registry", "metering")
FAILURES = (
    Failure("worker: kill -9", Promise.BEGUN_STREAMS, _killed("worker")),
    Failure("worker: SIGSTOP, then SIGCONT", Promise.BEGUN_STREAMS, _freeze("worker", 600)),
    Failure("worker: SIGTERM", Promise.NOTHING, _drained),
    Failure("router: kill -9", Promise.NOTHING, _killed("router")),
    Failure("registry: kill -9", Promise.NOTHING, _killed("registry")),
    Failure("metering: kill -9", Promise.NOTHING, _killed("metering")),
    Failure("router, registry, metering at once: kill -9", Promise.NOTHING, _killed(*CONTROL)),
    Failure("router: SIGSTOP, then SIGCONT", Promise.NOTHING, _freeze("router", 300)),
    Failure("registry: SIGSTOP, then SIGCONT", Promise.NOTHING, _freeze("registry", 300)),
    Failure(
        "metering: SIGSTOP longer than leases last",
        Promise.NOTHING,
        _freeze("metering", _AFTER_LEASES),
    ),
    Failure("Envoy: kill -9", Promise.IN_FLIGHT, _killed("envoy")),
    Failure("artifact: one bit is another", Promise.NOTHING, _spoilt(_flip)),
    Failure("artifact: digest of another model", Promise.NOTHING, _spoilt(_exchange)),
    Failure("worker's cache: spoilt; kill -9", Promise.BEGUN_STREAMS, _spoilt_cache),
)
