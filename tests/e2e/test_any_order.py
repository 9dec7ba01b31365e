"""A cluster whose processes start in the worst order, as where nothing starts them in an order (Swarm, Kubernetes)."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from services.rpc import health
from services.rpc.peer_kind import PeerKind
from services.rpc.settings import environment_for_children
from services.rpc.tcp_ports import free_port
from tests.e2e.mesh import Mesh
from tests.mesh_certificates import MeshCertificates
from tests.models import good

pytestmark = pytest.mark.extended

_SECONDS = 60.0
_PORTS = ("edge", "metrics", "registry", "router", "metering", "worker")
_KINDS = {"edge": PeerKind.EDGE, "worker": PeerKind.WORKER}
_MODULES = {"edge": "services.cli.edge"}


@dataclass
class Processes:
    """The programs of a cluster on one machine, each with a certificate and a state directory of its own."""

    folder: Path
    certificates: MeshCertificates
    stack: ExitStack
    ports: Mapping[str, str] = field(
        default_factory=lambda: {name: f"127.0.0.1:{free_port()}" for name in _PORTS}
    )
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start one program; it is ended with the test."""
        own = self.certificates.issue(name, _KINDS.get(name, PeerKind.SERVICE))
        known = {f"{one}_address": self.ports[one] for one in _PORTS if one != "metrics"}
        state = self.folder / "state" / name
        state.mkdir(parents=True)
        # Its folder is there before the edge is: the router tells Envoy of it.
        edge = str(self.certificates.folder / "edge")
        log = self.stack.enter_context((self.folder / f"{name}.log").open("wb"))
        self.running[name] = subprocess.Popen(
            [sys.executable, "-m", _MODULES.get(name, f"services.{name}")],
            env=environment_for_children(
                **known,
                tls_dir=str(own),
                edge_tls_dir=edge,
                state_dir=str(state),
                metrics_address=self.ports["metrics"] if name == "edge" else "",
                edge_threads="1",
                drain_seconds="5",
            ),
            stdout=log,
            stderr=log,
        )
        self.stack.callback(self._end, name)

    def _end(self, name: str) -> None:
        process = self.running[name]
        process.terminate()
        try:
            process.wait(_SECONDS)
        finally:
            process.kill()
            process.wait()

    def answers(self, name: str) -> None:
        """Wait until a program answers a question for its health, whatever it says."""
        deadline = time.monotonic() + _SECONDS
        own = self.certificates.folder / name
        while True:
            try:
                assert health.ask(self.ports[name], tls=own) in {"SERVING", "NOT_SERVING"}
            except (OSError, health.NoAnswerError):
                assert time.monotonic() < deadline, self.log(name)
                assert self.running[name].poll() is None, self.log(name)
                time.sleep(0.05)
            else:
                return

    def log(self, name: str) -> str:
        """What it has said."""
        return (self.folder / f"{name}.log").read_text()[-4000:]

    def ended(self) -> dict[str, str]:
        """Programs that have ended by themselves, and what they said."""
        return {
            name: self.log(name) for name, one in self.running.items() if one.poll() is not None
        }


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(tmp_path, MeshCertificates.begin(tmp_path / "tls"), stack)


def test_the_worst_order(processes: Processes) -> None:
    """Edge, worker, router, metering and registry, each after all that it needs: none ends, and calls are served."""
    for name in ("edge", "worker", "router", "metering"):
        processes.start(name)
        if name != "edge":
            processes.answers(name)
    assert processes.ended() == {}
    processes.start("registry")
    processes.answers("registry")
    plain = Mesh(processes.folder / "state" / "metering", processes.ports["edge"], 0)
    mesh = replace(plain, variables={"INFERPLANE_API_KEY": plain.token})
    deadline = time.monotonic() + _SECONDS
    while (told := mesh.cli("endpoints", "list", check=False)).returncode:
        assert time.monotonic() < deadline, told.stderr
    model = processes.folder / "model.onnx"
    model.write_bytes(good.identity("FP32"))
    mesh.cli("models", "push", "fp32@1", str(model))
    mesh.cli("deploy", "fp32@1")
    assert "fp32" in mesh.cli("endpoints", "list").stdout
    assert processes.ended() == {}
