"""`inferplane up` with the real services and the real Envoy: starts, heals, ends, and leaves nothing."""

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.cli.adapters.state_directory import RunningProcess, StateDirectory
from services.rpc.tcp_ports import free_port
from tests.integration.cli.running_mesh import DEADLINE, RunningMesh, run, running_mesh
from tests.models import good


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """One mesh for the tests that don't disturb it; its state directory is too long for sockets."""
    folder = tmp_path_factory.mktemp("state") / ("d" * 100)
    with running_mesh(folder, "--workers", "1") as mesh:
        yield mesh
    assert not mesh.state.sockets.exists()


def _assert_gone(processes: list[RunningProcess]) -> None:
    assert processes
    alive = [process for process in processes if not process.wait(DEADLINE)]
    assert alive == []


def _assert_answers(mesh: RunningMesh) -> None:
    listed = mesh.cli_inside("endpoints", "list", "-o", "json")
    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])


def test_up_answers_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """It tells where it listens, serves through the edge, and Ctrl-C ends all of it with exit code 0.

    1. `up` tells the edge, the workers and the next commands.
    2. The API answers through the edge; sockets belong to this user alone.
    3. SIGINT: exit code 0, every process below it is gone, no socket and no record is left.
    """
    with running_mesh(tmp_path, "--workers", "2") as mesh:
        assert any(
            line.endswith(f"{mesh.address} (gRPC, REST, OpenAI's API)") for line in mesh.lines
        )
        assert f"  export INFERPLANE_ADDRESS={mesh.address}" in mesh.lines
        _assert_answers(mesh)
        assert mesh.state.run.stat().st_mode & 0o077 == 0
        processes = mesh.processes()
        assert len(processes) == 7
        mesh.process.send_signal(signal.SIGINT)
        assert mesh.process.wait(DEADLINE) == 0
        _assert_gone(processes)
        assert list(mesh.state.run.iterdir()) == []
    assert mesh.lines[-1] == "stopped"


def test_what_is_killed_is_started_again(tmp_path: Path) -> None:
    """Each child killed with SIGKILL is told of, runs again, and the mesh answers again.

    Envoy needs no disk for that: its bootstrap is as it was, and couldn't be written.
    """
    with running_mesh(tmp_path, "--workers", "1") as mesh:
        (mesh.state.run / "envoy.yaml.part").mkdir()
        for name in ("registry", "metering", "router", "envoy", "worker-1"):
            before = mesh.pid(name)
            os.kill(before, signal.SIGKILL)
            mesh.until(f"^{name} was killed by signal 9; it is started again in 0.1 s$")
            _until_answers(mesh)
            assert mesh.pid(name) != before
        status = json.loads(mesh.cli_inside("status", "-o", "json").stdout)
        assert status["problems"] == []
        assert [envoy["in_sync"] for envoy in status["router"]["envoys"]] == [True]


def _until_answers(mesh: RunningMesh, workers: int = 1) -> None:
    """`wait_edge` in a process of its own: the edge answers and so many workers are alive."""
    code = (
        "import asyncio, sys; from services.cli.adapters.readiness import wait_edge;"
        "key = (('authorization', 'Bearer ' + sys.argv[3]),) if sys.argv[3] else ();"
        "asyncio.run(wait_edge(sys.argv[1], int(sys.argv[2]), key))"
    )
    command = [sys.executable, "-c", code, mesh.address, str(workers), mesh.state.read_admin_key()]
    subprocess.run(command, check=True, timeout=DEADLINE)


def test_taken_port_is_told_with_its_holder(tmp_path: Path) -> None:
    """A port that somebody listens on: exit code 1, the message names port, program and pid; nothing is started."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = run("up", "--edge-port", str(port), "--state-dir", str(tmp_path))
    name = psutil.Process().name()
    assert done.returncode == 1
    assert f"port {port} is taken by {name} (pid {os.getpid()})" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(StateDirectory(tmp_path).logs.iterdir()) == []


@pytest.mark.extended
def test_any_path_of_a_state_directory_serves(tmp_path: Path) -> None:
    """Characters that mean something in URIs, YAML, shells or templates don't in a state directory's path."""
    folder = tmp_path / "a%24b 'c' \"d\" #e ${x} $$ ü?&"
    model = tmp_path / "m.onnx"
    model.write_bytes(good.affine(2, 2))
    asked = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    with running_mesh(folder, "--workers", "1") as mesh:
        assert mesh.cli_inside("models", "push", "m@1", str(model)).returncode == 0
        assert mesh.cli_inside("deploy", "m@1").returncode == 0
        answer = mesh.cli_inside("infer", "m", "--json", "-", stdin=json.dumps(asked))
        assert (answer.returncode, "4" in answer.stdout) == (0, True), answer.stderr
        mesh.process.send_signal(signal.SIGTERM)
        assert mesh.process.wait(DEADLINE) == 0
    assert not mesh.state.sockets.exists()
    assert (folder / "registry" / "registry.db").exists()


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["here", "detached"])
@pytest.mark.parametrize(
    ("state", "told"),
    [
        pytest.param("file/state", "Not a directory", id="a file in the way"),
        pytest.param("/".join(["d" * 99] * 5), "allowed: at most 483", id="too long"),
        pytest.param("n" * 256, "File name too long", id="a name too long"),
    ],
)
def test_unusable_state_directory_is_told(
    tmp_path: Path, state: str, told: str, detach: list[str]
) -> None:
    """Exit code 1 and one line that names the directory and what is wrong."""
    (tmp_path / "file").touch()
    done = run("up", *detach, INFERPLANE_STATE_DIR=str(tmp_path / state))
    assert done.returncode == 1
    assert told in done.stderr
    assert str(tmp_path / state) in done.stderr
    assert done.stderr.count("\n") == 1


def test_second_up_on_one_state_directory_is_refused(shared: RunningMesh) -> None:
    """The second `up` ends with exit code 1 and names the holder; the first is not disturbed."""
    other = shared.cli("up", "--edge-port", str(free_port()))
    assert other.returncode == 1
    assert f"process {shared.process.pid} holds it" in other.stderr
    _assert_answers(shared)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_killed_supervisor_leaves_nothing(tmp_path: Path) -> None:
    """SIGKILL of the supervisor ends all its children, and the directory can be used again at once."""
    with running_mesh(tmp_path, "--workers", "1") as mesh:
        processes = mesh.processes()
        mesh.process.kill()
        _assert_gone(processes)
    with running_mesh(tmp_path, "--workers", "1") as mesh:
        _assert_answers(mesh)


@pytest.mark.extended
def test_leftovers_of_a_dead_supervisor_are_ended(tmp_path: Path) -> None:
    """A process that a dead supervisor wrote down and that still runs is ended at the next start; others are spared."""
    sleep = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    state = StateDirectory(tmp_path)
    state.prepare()
    with subprocess.Popen(sleep, process_group=0) as left, subprocess.Popen(sleep) as spared:
        record = RunningProcess.of("worker-9", left.pid)
        assert record is not None
        recycled = RunningProcess("worker-8", spared.pid, started=1.0)  # a pid used anew
        state.write_processes([recycled, record])
        with running_mesh(tmp_path, "--workers", "0") as mesh:
            assert f"ended worker-9 (pid {left.pid}), left by a supervisor that died" in mesh.lines
            assert left.wait(DEADLINE) == -signal.SIGKILL
            assert spared.poll() is None
        spared.kill()


def test_detached_up_goes_on_and_down_ends_it(tmp_path: Path) -> None:
    """`up --detach` returns when the mesh answers; commands find it wherever it listens; `down` waits for its end; a
    second `down` finds nothing.
    """
    port = free_port()
    environment = {"INFERPLANE_STATE_DIR": str(tmp_path)}
    up = run("up", "--detach", "--workers", "1", "--edge-port", str(port), **environment)
    try:
        assert up.returncode == 0, up.stderr
        assert "inferplane down stops it" in up.stderr
        processes = StateDirectory(tmp_path).processes()
        assert [p.name for p in processes] == [
            "supervisor", "envoy", "worker-1", "router", "registry", "metering",
        ]  # fmt: skip
        assert run("endpoints", "list", **environment).returncode == 0
        log = tmp_path / "logs" / "supervisor.log"
        before = log.read_text()
        second = run("up", "--detach", **environment)
        assert (second.returncode, log.read_text()) == (1, before)
        assert f"process {processes[0].pid} holds it" in second.stderr
    finally:
        down = run("down", **environment)
    assert f"(pid {processes[0].pid})" in down.stderr
    _assert_gone(processes)
    again = run("down", **environment)
    assert again.returncode == 0
    assert again.stderr.startswith(f"no mesh runs on {tmp_path}; if it runs elsewhere")
    logs = run("logs", **environment)
    assert logs.stderr.startswith(f"no mesh runs on {tmp_path}; if it runs elsewhere")
    assert "listening" in logs.stdout
    assert "stopped" in (tmp_path / "logs" / "supervisor.log").read_text()


@pytest.mark.extended
@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["here", "detached"])
def test_start_that_is_hopeless_ends(tmp_path: Path, detach: list[str]) -> None:
    """A service that dies again and again before the mesh answers ends `up` with its name and its log."""
    done = run(
        *("up", *detach, "--workers", "0", "--edge-port", str(free_port()), "--timeout", "110"),
        INFERPLANE_STATE_DIR=str(tmp_path),
        INFERPLANE_STORE_URL="nonsense://x",
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    found = re.fullmatch(r"error: (registry|metering) dies again and again; its log is (.+)", last)
    assert found, last  # both refuse that store
    service, log = found[1], tmp_path / "logs" / f"{found[1]}.log"
    assert found[2] == str(log)
    told = done.stderr.partition(f"{service} dies again and again. The end of its log:\n")[2]
    assert told.startswith("  ")
    assert "nonsense" in told
    assert "nonsense" in log.read_text()
    assert not StateDirectory(tmp_path).is_held()


def test_extra_worker_joins_and_leaves(shared: RunningMesh, tmp_path: Path) -> None:
    """`inferplane worker` joins a running mesh, and SIGTERM makes it leave with exit code 0."""

    def pools() -> set[str]:
        status = json.loads(shared.cli_inside("status", "-o", "json", "--interval", "0.1").stdout)
        return {worker["pool"] for worker in status["workers"]}

    environment = {"INFERPLANE_STATE_DIR": str(shared.state.path)}
    command = [sys.executable, "-m", "services.cli", "worker", "--pool", "spare"]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL
    ) as worker:
        _until_answers(shared, workers=2)
        assert pools() == {"default", "spare"}
        worker.terminate()
        assert worker.wait(DEADLINE) == 0
    assert pools() == {"default"}


def test_extra_worker_needs_a_running_mesh(tmp_path: Path) -> None:
    """Where nothing runs, exit code 4 and what to start."""
    refused = run("worker", INFERPLANE_STATE_DIR=str(tmp_path))
    assert refused.returncode == 4
    assert "To start one: inferplane up" in refused.stderr


def test_metrics_of_every_process_can_be_scraped(shared: RunningMesh) -> None:
    """The file for Prometheus lists each process, and each listed address answers with metrics."""
    targets = json.loads((shared.state.run / "metrics-targets.json").read_text())
    names = [target["labels"]["process"] for target in targets]
    assert names == ["envoy", "worker-1", "router", "registry", "metering"]
    for target in targets:
        assert target["labels"].keys() == {"service", "process"}
        with urllib.request.urlopen(f"http://{target['targets'][0]}/metrics") as answer:
            assert re.search(rb"^# TYPE ", answer.read(), re.MULTILINE)


_ADMIN_CALLS = [
    "POST /quitquitquit", "POST /metrics", "GET /", "GET /config_dump", "GET /stats/prometheus",
    "GET /metrics/../quitquitquit", "GET /metrics/%2e%2e/quitquitquit", "POST /logging?level=trace",
]  # fmt: skip


def test_nobody_else_reaches_the_admin_interface_of_envoy(shared: RunningMesh) -> None:
    """Envoy's admin interface is a socket of this user; none of its TCP ports lets one call it."""
    admin = shared.state.sockets / "envoy-admin.sock"
    assert stat.S_ISSOCK(admin.stat().st_mode)
    assert admin.stat().st_mode & 0o777 == 0o600
    envoy = psutil.Process(shared.pid("envoy"))
    open_ports = [c.laddr for c in envoy.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    ports = {address.port for address in open_ports}
    assert len(ports) == 2
    assert shared.port in ports
    assert {address.ip for address in open_ports} == {"127.0.0.1"}
    for port in ports:
        for call in _ADMIN_CALLS:
            method, _, path = call.partition(" ")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
            connection.request(method, path)
            assert connection.getresponse().status in (400, 401, 404), call
            connection.close()
    assert envoy.is_running()
    _assert_answers(shared)


def test_sockets_move_where_a_long_state_directory_is_too_long(shared: RunningMesh) -> None:
    """A state directory whose sockets would have too long a path still works, and stays private."""
    assert shared.state.sockets != shared.state.run
    assert shared.state.sockets.stat().st_mode & 0o077 == 0
    _assert_answers(shared)


def test_logs_show_what_services_wrote(shared: RunningMesh) -> None:
    """`logs` shows the last lines by service and by time, in words or raw; an unknown service is told what there is."""
    shown = shared.cli_inside("logs", "registry", "-n", "500")
    assert shown.returncode == 0
    assert re.search(r"^registry +\d\d:\d\d:\d\d\.\d{3} +info +listening address=", shown.stdout)
    everything = shared.cli_inside("logs", "-n", "500").stdout
    assert {line.split()[0] for line in everything.splitlines()} >= {
        "registry", "metering", "router", "worker-1",
    }  # fmt: skip
    raw = shared.cli_inside("logs", "worker", "--raw", "-n", "1").stdout
    assert raw.count("\n") == 1
    assert json.loads(raw)["service"] == "worker"
    unknown = shared.cli_inside("logs", "nobody")
    assert unknown.returncode == 3
    assert "there are: envoy, metering, registry, router, worker-1" in unknown.stderr


def test_live_status_ends_by_ctrl_c(shared: RunningMesh) -> None:
    """On a terminal `status` refreshes until Ctrl-C, then gives the screen back; exit code 130."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "services.cli", "status", "--address", shared.address]
    environment = {**os.environ, "INFERPLANE_STATE_DIR": str(shared.state.path)}  # and so its key
    with subprocess.Popen(
        [*command, "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as status:
        os.close(theirs)
        shown = b""
        while shown.count(b"Workers") < 2:
            shown += os.read(ours, 65536)
        status.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the other end closes
            while more := os.read(ours, 65536):
                shown += more
        assert status.wait(DEADLINE) == 130
    os.close(ours)
    assert b"Traceback" not in shown
    assert shown.endswith(b"\x1b[?1049l")  # back from the alternate screen
