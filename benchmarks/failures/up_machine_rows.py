"""What a machine does to its mesh: disks that are full, clocks that jump, each under the load."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

from inferplane.metering.v1 import ledger_service_pb2, ledger_service_pb2_grpc

from benchmarks.failures.book import Promise
from benchmarks.failures.calls import TENSOR_ENDPOINT
from benchmarks.failures.failure import Act, Failure
from benchmarks.failures.traffic import Outcome, Traffic
from benchmarks.failures.up_machine import Clock, Disks
from benchmarks.failures.up_mesh import WORKERS, UpMesh
from tests.models import good

_HOUR = 3600
_MOST_KEPT = 100  # small writes
_DAY = 25 * 3600  # seconds; into the next window of budgets
_PUSHED = "second@1"


def disk_failures(disks: Disks) -> tuple[Failure[UpMesh], ...]:
    """Each folder's disk is full, and later isn't."""
    return (
        Failure("metering's disk is full", Promise.NOTHING, _metering(disks)),
        Failure("registry's disk is full", Promise.NOTHING, _registry(disks)),
        Failure("worker's disk for artifacts is full", Promise.NOTHING, _cache(disks)),
        Failure("worker's disk for usage is full", Promise.REFUSED, _outbox(disks)),
    )


def clock_failures(clock: Clock) -> tuple[Failure[UpMesh], ...]:
    """All wall clocks jump a day ahead, and back."""
    return (
        Failure("clocks: a day ahead", Promise.NOTHING, _jump(clock, _DAY)),
        Failure("clocks: a day back", Promise.NOTHING, _jump(clock, 0)),
    )


def _metering(disks: Disks) -> Act[UpMesh]:
    def act(mesh: UpMesh, traffic: Traffic) -> None:
        with disks.full("metering"):
            traffic.answered(400)
            # What the database's files have room for is kept; with the load's usage that is little.
            for number in range(_MOST_KEPT):
                project = f"late{number}"
                if mesh.mesh.cli("projects", "create", project, check=False).returncode:
                    break
            else:
                raise AssertionError("so many projects were stored on a full disk")
        mesh.mesh.cli("projects", "create", project)

    return act


def _registry(disks: Disks) -> Act[UpMesh]:
    def act(mesh: UpMesh, traffic: Traffic) -> None:
        file = mesh.mesh.state_dir.with_name("second.onnx")
        file.write_bytes(good.affine(3.0))
        push = ("models", "push", _PUSHED, str(file))
        with disks.full("registry"):
            refused = mesh.mesh.cli(*push, check=False)
            assert refused.returncode, "a version was stored on a full disk"
            assert "full" in refused.stderr, refused.stderr
            traffic.answered(300)
        mesh.mesh.cli(*push)

    return act


def _cache(disks: Disks) -> Act[UpMesh]:
    """A version whose files a worker can't keep: told; once there is room it is loaded."""

    def act(mesh: UpMesh, traffic: Traffic) -> None:
        cli = mesh.mesh.cli
        deploy = ("deploy", _PUSHED)
        with disks.full("cache"):
            refused = cli(*deploy, check=False)
            assert refused.returncode, "a version was loaded from a full disk"
            assert "disk" in refused.stderr, refused.stderr
            traffic.answered(300)
        cli("undeploy", _PUSHED)
        cli(*deploy)

    return act


def _outbox(disks: Disks) -> Act[UpMesh]:
    """Work that can't be counted is refused, with the reason; then calls go on."""

    def act(_: UpMesh, traffic: Traffic) -> None:
        def refused(outcomes: list[Outcome]) -> bool:
            return sum("No space left" in o.how.detail for o in outcomes) >= 100

        with disks.full("usage"):
            traffic.wait(refused, "a hundred calls were refused")

    return act


def _jump(clock: Clock, seconds: int) -> Act[UpMesh]:
    """No lease ends of it, neither of workers nor of budgets, and nothing is started again."""

    def act(mesh: UpMesh, traffic: Traffic) -> None:
        before = (_pids(mesh), ended_leases(mesh))
        clock.jump(seconds)
        assert abs(_ahead(mesh) - seconds) < _HOUR
        for _ in range(4):
            traffic.answered(200)
            assert mesh.mesh.well(f"models/{TENSOR_ENDPOINT}/versions/1") == WORKERS
        assert (_pids(mesh), ended_leases(mesh)) == before
        mesh.well()

    return act


def _ahead(mesh: UpMesh) -> float:
    """Seconds that metering's wall clock is ahead of the machine's."""
    with mesh.mesh.channel() as channel:
        ledger = ledger_service_pb2_grpc.LedgerServiceStub(channel)
        told = ledger.VerifyLedger(ledger_service_pb2.VerifyLedgerRequest(), timeout=60)
    return (told.verify_time.ToDatetime(UTC) - datetime.now(UTC)).total_seconds()


def _pids(mesh: UpMesh) -> set[int]:
    listed = json.loads((mesh.mesh.state_dir / "run" / "processes.json").read_text())
    return {int(one["pid"]) for one in listed}


def ended_leases(mesh: UpMesh) -> float:
    """How many holders of budgets' leases metering has not heard of in time."""
    with suppress(OSError):
        (told,) = mesh.mesh.metrics("metering")
        for line in told.splitlines():
            if line.startswith("inferplane_metering_lease_ends_total "):
                return float(line.split()[1])
    raise AssertionError("metering does not tell of leases")
