"""A mesh to kill processes of: its files, its models and budgets, and how it comes to rest."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from benchmarks.kill_matrix import verdict
from benchmarks.kill_matrix.calls import AFFINE, TINY
from tests.e2e.mesh import ROOT, Mesh, eventually, running
from tests.models import good
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

WORKERS = 2
MODULES = {"worker": "services.worker", "envoy": "envoy", "metering": "services.metering"}
VERSIONS = tuple(f"models/{name}/versions/1" for name in (AFFINE, TINY))
_AUDIT = Path(__file__).with_name("audit")
_REST_SECONDS = 180.0  # until all rows have arrived
_QUIET_SECONDS = 12.0  # in which none comes: longer than between looks for outboxes of the dead
_LEASE_SECONDS = 60.0  # until nothing is held; leases last for ten
# That bind nobody, but are kept.
_BUDGETS = (
    ("most-tokens", "--tokens", "1000000000"),
    ("most-requests", "--requests", "1000000000"),
    ("most-money", "--money", "1000000"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Files of one run."""

    folder: Path

    @property
    def log(self) -> Path:
        """Of the callers."""
        return self.folder / "callers.log"

    @property
    def audit(self) -> Path:
        """Of the workers."""
        return self.folder / "audit.log"

    @property
    def gate(self) -> Path:
        """Where workers wait."""
        return self.folder / "gate"

    @property
    def database(self) -> Path:
        """Metering's."""
        return self.folder / "state" / "metering" / "metering.db"

    @property
    def accepted(self) -> int:
        """How large the workers' second count is, in bytes."""
        return self.audit.stat().st_size if self.audit.exists() else 0


@contextmanager
def ground(*, gated: bool) -> Iterator[tuple[Mesh, Place]]:
    """A whole `up` with both models on it, whose workers keep a second count; `gated`: and can be held."""
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        place = Place(Path(name))
        os.environ["KILL_MATRIX_AUDIT"] = str(place.audit)
        os.environ["KILL_MATRIX_GATE"] = str(place.gate) if gated else ""
        os.environ["PYTHONPATH"] = os.pathsep.join(
            (str(_AUDIT), str(ROOT), str(ROOT / "generated"))
        )
        with running(place.folder / "state", workers=WORKERS) as mesh:
            _deploy(mesh, place.folder)
            yield mesh, place


def _deploy(mesh: Mesh, folder: Path) -> None:
    """Both models, prices and budgets, and everything well."""
    mesh.cli("prices", "set", "request", "0.001")
    mesh.cli("prices", "set", "output-token", "0.0001")
    for name, *amount in _BUDGETS:
        mesh.cli("budget", "set", f"default/{name}", *amount)
    (folder / "affine.onnx").write_bytes(good.affine(2.0))
    write_tiny(folder / "tiny.gguf", Tiny(context=1024))
    for name, file in ((AFFINE, "affine.onnx"), (TINY, "tiny.gguf")):
        mesh.cli("models", "push", name, str(folder / file))
        mesh.cli("deploy", f"{name}@1")
    eventually(lambda: well(mesh) == WORKERS, seconds=120, what="all is well")


def well(mesh: Mesh) -> int:
    """How many workers Envoy finds well for both models; none while it is away."""
    try:
        return min(mesh.well(version) for version in VERSIONS)
    except (OSError, ValueError):
        return 0


def settle(place: Place) -> None:
    """Wait until all rows have arrived: no outbox of a dead worker is left, and none comes any more."""
    end, before, since = time.monotonic() + _REST_SECONDS, (-1, -1), 0.0
    while time.monotonic() < end:
        outboxes = len(list((place.folder / "state" / "usage").glob("*/lock")))
        found = (verdict.count_rows(place.database), outboxes)
        if found != before or outboxes > WORKERS:
            before, since = found, time.monotonic()
        elif time.monotonic() - since > _QUIET_SECONDS:
            return
        time.sleep(0.5)  # between two looks at others' files
    raise AssertionError(f"rows still come after {_REST_SECONDS} s")


def accounts(mesh: Mesh) -> list[str]:
    """What is not as promised of ledger and budgets; prints both."""
    found = []
    verified = mesh.cli("ledger", "verify", check=False)
    print(verified.stdout.strip())
    if verified.returncode:
        found.append(f"the ledger does not verify: {verified.stderr}")
    try:
        eventually(lambda: not _held(mesh), seconds=_LEASE_SECONDS, what="nothing is held")
    except AssertionError:
        found.append(f"held at rest: {_held(mesh)}")
    print(mesh.cli("budget", "list").stdout.strip())
    return found


def _held(mesh: Mesh) -> dict[str, str]:
    """What budgets hold, by name; only those that hold anything."""
    said = json.loads(mesh.cli("budget", "list", "--output", "json").stdout)
    held = {one["name"]: one.get("status", {}).get("held", "") for one in said}
    return {name: amount for name, amount in held.items() if Decimal(amount or "0")}
