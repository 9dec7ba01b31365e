"""The state directory: who holds it, what is written down, what is private."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.adapters.state_directory import RunningProcess, Services, StateDirectory
from services.cli.adapters.upstart import stop
from services.cli.domain.exit_code import StartError
from services.rpc.errors import UnavailableError

_HOLD = (
    "import sys; from pathlib import Path;"
    "from services.cli.adapters.state_directory import StateDirectory\n"
    "with StateDirectory(Path(sys.argv[1])).held(): print('held', flush=True); sys.stdin.read()"
)


def test_held_by_another_process(tmp_path: Path) -> None:
    """Only one process holds a directory; when it dies, whatever way, the directory is free."""
    state = StateDirectory(tmp_path)
    state.prepare()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path], stdin=pipe, stdout=pipe
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        record = RunningProcess.of("supervisor", holder.pid)
        assert record is not None
        state.write_processes([record])
        with pytest.raises(StartError, match=f"process {holder.pid} holds it"), state.held():
            pass
        assert state.is_held()
        holder.kill()
    assert not state.is_held()
    assert state.supervisor() is None


def test_down_without_a_mesh(tmp_path: Path) -> None:
    """Nothing runs, or nothing ever ran, or it is between: each is told as it is."""
    state = StateDirectory(tmp_path / "state")
    assert stop(state, 1).startswith("nothing runs on")
    assert not state.path.exists()
    state.prepare()
    assert stop(state, 1).startswith("nothing runs on")
    with state.held(), pytest.raises(UnavailableError, match="just starting or ending"):
        stop(state, 1)


def test_folders_are_private(tmp_path: Path) -> None:
    """Sockets and records are for this user only, also if the folder was there with other rights."""
    state = StateDirectory(tmp_path / "new" / "state")
    state.prepare()
    state.run.chmod(0o755)
    state.prepare()
    assert state.run.stat().st_mode & 0o777 == 0o700


def test_foreign_run_folder_is_refused(tmp_path: Path) -> None:
    """A link in place of the run folder could lead anywhere."""
    state = StateDirectory(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    state.run.symlink_to(elsewhere)
    with pytest.raises(StartError, match="not a folder of this user"):
        state.prepare()


@pytest.mark.parametrize(
    ("length", "is_short"),
    [pytest.param(10, False, id="fits"), pytest.param(120, True, id="is too long")],
)
def test_sockets_have_room(length: int, is_short: bool) -> None:
    """Sockets lie in `run`, or in a short folder that the same directory always leads to."""
    path = Path("/") / ("d" * length)
    state = StateDirectory(path)
    assert (state.sockets != state.run) is is_short
    assert state.sockets == StateDirectory(path).sockets
    assert len(os.fsencode(state.sockets / "worker-99-1234567890.sock")) <= 107


def test_services_need_a_running_mesh(tmp_path: Path) -> None:
    """Addresses that a dead mesh left behind are not given out."""
    state = StateDirectory(tmp_path)
    state.prepare()
    services = Services(registry="unix:/r", router="unix:/o", edge="127.0.0.1:1")
    state.write_services(services)
    with pytest.raises(UnavailableError, match="nothing runs on"):
        state.services()
    with state.held():
        assert state.services() == services


def test_recycled_pid_is_another_process() -> None:
    """A process is recognised by pid and start time together."""
    me = RunningProcess.of("me", os.getpid())
    assert me is not None
    assert me.find() is not None
    assert RunningProcess("me", me.pid, me.started - 100).find() is None
    assert RunningProcess("me", me.pid, me.started - 100).wait(0) is True
    assert me.wait(0) is False


def test_ended_process_is_gone_before_it_is_reaped() -> None:
    """A zombie has ended: waiting does not depend on whoever should reap it."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        record = RunningProcess.of("short", process.pid)
        assert record is None or record.wait(10)
        assert record is None or record.find() is None
    assert RunningProcess.of("short", process.pid) is None


def test_forget_run_keeps_state(tmp_path: Path) -> None:
    """Records and sockets of a run go, what is stored stays."""
    state = StateDirectory(tmp_path)
    state.prepare()
    state.write_processes([])
    state.write_metrics_targets([])
    (state.sockets / "a.sock").touch()
    (tmp_path / "registry.db").touch()
    state.forget_run()
    assert list(state.run.iterdir()) == []
    assert (tmp_path / "registry.db").exists()
