"""Nobody without a key gets anything of a mesh: every port that it listens on, every method, every path."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest

from services.router.resources import access
from tests.e2e.mesh import Mesh
from tests.rest_calls import rest_calls

_ELSEWHERE = (("POST", "/quitquitquit"), ("GET", "/config_dump"), ("POST", "/metrics"))


def listening(mesh: Mesh) -> dict[int, str]:
    """Port → address of all that the mesh's processes listen on over TCP."""
    found = {}
    supervisor = psutil.Process(mesh.supervisor)
    for process in (supervisor, *supervisor.children(recursive=True)):
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                found[connection.laddr.port] = connection.laddr.ip
    return found


def metrics_ports(mesh: Mesh) -> set[int]:
    """Ports that tell metrics, and nothing else."""
    targets = json.loads((mesh.state_dir / "run" / "metrics-targets.json").read_text())
    return {int(target["targets"][0].rpartition(":")[2]) for target in targets}


def test_the_mesh_listens_at_the_edge_alone(mesh: Mesh) -> None:
    """Over TCP there are the edge and metrics, on this machine; services are on sockets of their user alone."""
    found = listening(mesh)
    edge = int(mesh.address.rpartition(":")[2])
    assert set(found) == {edge, *metrics_ports(mesh)}
    assert set(found.values()) == {"127.0.0.1"}
    for path in sockets(mesh):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700, path


def sockets(mesh: Mesh) -> Iterator[Path]:
    """All that the mesh's processes listen on."""
    supervisor = psutil.Process(mesh.supervisor)
    for process in (supervisor, *supervisor.children(recursive=True)):
        for connection in process.net_connections(kind="unix"):
            if isinstance(connection.laddr, str) and connection.laddr.startswith("/"):
                yield Path(connection.laddr)


def test_metrics_ports_answer_nothing_else(mesh: Mesh) -> None:
    """Whatever is asked of them, they change nothing and show metrics at most."""
    for port in metrics_ports(mesh):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for path in (
                "/inferplane.registry.v1.ModelService/ListModels",
                "/grpc.health.v1.Health/Check",
            ):
                call: Any = channel.unary_unary(path)
                with pytest.raises(grpc.RpcError):
                    call(b"", timeout=60)
        for method, path in _ELSEWHERE:
            answer = httpx.request(method, f"http://127.0.0.1:{port}{path}", timeout=60)
            assert answer.status_code in (404, 405) or b"# TYPE" in answer.content, (port, path)


def test_no_method_without_a_key(mesh: Mesh) -> None:
    """Every gRPC method of every service, and names that nobody has."""
    with grpc.insecure_channel(mesh.address) as channel:
        for path in (*access.table(), "/", "/no.such.Service/Method"):
            call: Any = channel.unary_stream(path)
            with pytest.raises(grpc.RpcError) as raised:
                next(call(b"", timeout=60))
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED, path


def test_no_path_without_a_key(mesh: Mesh) -> None:
    """Every path of REST and OpenAI's API, and others."""
    others = [("GET", "/"), ("GET", "/metrics"), ("POST", "/v1/embeddings")]
    calls = [*((verb, path) for verb, path, _ in rest_calls()), *others]
    with httpx.Client(base_url=f"http://{mesh.address}", timeout=60) as client:
        for method, path in calls:
            assert client.request(method, path, json={}).status_code == 401, path
