"""Ending a mesh under load: what is in flight finishes, and the time it gets is bounded."""

import json
import signal
import threading
import time
from contextvars import copy_context
from pathlib import Path

import pytest

from services.cli.adapters.inference import InferenceCall, infer
from services.rpc.errors import InferplaneError
from tests.integration.cli.running_mesh import DEADLINE, RunningMesh, running_mesh
from tests.models import good

pytestmark = pytest.mark.extended


def _body(rounds: int) -> bytes:
    inputs = [
        {"name": "x", "shape": [1], "datatype": "FP32", "data": [7]},
        {"name": "rounds", "shape": [1], "datatype": "INT64", "data": [rounds]},
    ]
    return json.dumps({"inputs": inputs}).encode()


def _deploy_counting(mesh: RunningMesh, folder: Path) -> None:
    path = folder / "counting.onnx"
    path.write_bytes(good.counting())
    for command in (("models", "push", "counting", str(path)), ("deploy", "counting@1")):
        done = mesh.cli_inside(*command)
        assert done.returncode == 0, done.stderr


def _rounds_for(mesh: RunningMesh, seconds: float) -> int:
    """How many rounds take about so long here and now."""
    rounds, took = 10_000, 0.0
    while took < 0.2:
        rounds *= 2
        begun = time.monotonic()
        with mesh.key():
            infer(InferenceCall(mesh.address, "counting", None, _body(rounds), DEADLINE))
        took = time.monotonic() - begun
    return int(rounds / took * seconds)


class _Call:
    """A call that runs beside the test; what came of it is known after `join`."""

    def __init__(self, mesh: RunningMesh, rounds: int) -> None:
        self._call = InferenceCall(mesh.address, "counting", None, _body(rounds), DEADLINE)
        self.outcome: object = None
        with mesh.key():
            self._thread = threading.Thread(target=copy_context().run, args=(self._run,))
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = infer(self._call)["outputs"][0]["data"]
        except InferplaneError as error:
            self.outcome = error

    def join(self) -> object:
        self._thread.join(DEADLINE)
        return self.outcome


def _until_in_flight(mesh: RunningMesh) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < DEADLINE:
        status = json.loads(mesh.cli_inside("status", "-o", "json", "--interval", "0.1").stdout)
        if any(worker["in_flight"] for worker in status["workers"]):
            return
    raise AssertionError("no worker has told of the call")


def test_call_in_flight_finishes(tmp_path: Path) -> None:
    """A call that computes for seconds is answered though the mesh was asked to end meanwhile."""
    with running_mesh(tmp_path / "state", "--workers", "1") as mesh:
        _deploy_counting(mesh, tmp_path)
        call = _Call(mesh, _rounds_for(mesh, 5.0))
        _until_in_flight(mesh)
        mesh.process.send_signal(signal.SIGINT)
        assert call.join() == [7.0]
        assert mesh.process.wait(DEADLINE) == 0
        assert mesh.lines[-1] == "stopped"


def test_grace_is_bounded(tmp_path: Path) -> None:
    """A call that would take far longer than the grace time does not keep the mesh from ending; its caller is told."""
    with running_mesh(tmp_path / "state", "--workers", "1", "--drain-seconds", "2") as mesh:
        _deploy_counting(mesh, tmp_path)
        call = _Call(mesh, _rounds_for(mesh, 60.0))
        _until_in_flight(mesh)
        begun = time.monotonic()
        mesh.process.send_signal(signal.SIGINT)
        assert mesh.process.wait(DEADLINE) == 0
        assert time.monotonic() - begun < 30
        assert isinstance(call.join(), InferplaneError)
