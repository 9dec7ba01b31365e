"""The state directory: who holds it, what is written down, what is private."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
    assert f" runs on {state.path}" in stop(state, 1)
    assert not state.path.exists()
    state.prepare()
    assert f" runs on {state.path}" in stop(state, 1)
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


_ODD = [
    "%24",
    "it's",
    'say "x"',
    "#1",
    "${x}",
    "$HOME",
    "?a&b",
    "a b",
    "ü",
    "new\nline",
    "\\",
    "a:b",
]


@pytest.mark.parametrize("name", _ODD)
def test_sockets_have_plain_paths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an address would read otherwise than it is written never comes into one, be it from TMPDIR."""
    assert "inferplane-" in StateDirectory(Path("/state") / name).sockets.name
    monkeypatch.setattr(tempfile, "tempdir", f"/tmp/{name}")
    assert StateDirectory(Path("/state") / name).sockets.parent == Path("/tmp")


@contextmanager
def _as_no_root() -> Iterator[None]:
    """Run as a user for whom the rights of files count."""
    if os.getuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("only Linux lets root be somebody else for a while")
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("below", ["", "state", "a/b"], ids=["it", "in it", "deep in it"])
def test_read_only_folder_is_told(folder: Path, below: str) -> None:
    """One line names the directory and what is needed."""
    folder.chmod(0o555)
    state = StateDirectory(folder / below)
    with _as_no_root(), pytest.raises(StartError) as refused:
        state.prepare()
    assert refused.value.message.startswith(f"{folder}")
    assert f"Permission denied; the state directory {state.path} must be" in refused.value.message
    assert "\n" not in refused.value.message
    folder.chmod(0o755)


def test_what_another_user_left_is_told(folder: Path) -> None:
    """A log or a lock that can't be written, left by `sudo` perhaps, is found before anything starts."""
    state = StateDirectory(folder)
    state.logs.mkdir()
    state.logs.chmod(0o777)
    log, lock = state.logs / "router.log", folder / "lock"
    log.touch(mode=0o400)
    with _as_no_root(), pytest.raises(StartError, match=rf"{log}: Permission denied"):
        state.prepare()
    lock.touch(mode=0o400)
    for ask in (state.is_held, lambda: stop(state, 1)):
        with _as_no_root(), pytest.raises(StartError, match=rf"{lock}: Permission denied"):
            ask()


def test_file_in_the_way_is_told(tmp_path: Path) -> None:
    """A file where the folder should be is named."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StartError, match=r"file.*must be a folder"):
            StateDirectory(path).prepare()


def test_longest_path(tmp_path: Path) -> None:
    """What SQLite can't open is refused, also behind a link; one byte less works."""
    missing = 483 - len(os.fsencode(tmp_path))
    folder = tmp_path.joinpath(*["d" * 99] * (missing // 100 - 1))
    longest = folder / ("e" * (483 - len(os.fsencode(folder)) - 1))
    assert len(os.fsencode(longest)) == 483
    state = StateDirectory(longest)
    state.prepare()
    with closing(sqlite3.connect(_database(state))) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (a)")
    state.forget_run()  # the short folder of its sockets
    too_long = StateDirectory(longest.with_name(longest.name + "e"))
    with pytest.raises(StartError, match="a path of 484 bytes; allowed: at most 483"):
        too_long.prepare()
    too_long.path.mkdir()
    (tmp_path / "link").symlink_to(too_long.path)
    with pytest.raises(StartError, match="a path of 484 bytes"):
        StateDirectory(tmp_path / "link").prepare()


def _database(state: StateDirectory) -> Path:
    (state.path / "registry").mkdir()
    return state.path / "registry" / "registry.db"


def test_path_that_is_no_text_is_told(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 can't be written in messages between services."""
    with pytest.raises(StartError, match="is not UTF-8"):
        StateDirectory(tmp_path / os.fsdecode(b"\xff")).prepare()


def test_services_need_a_running_mesh(tmp_path: Path) -> None:
    """Addresses that a dead mesh left behind are not given out."""
    state = StateDirectory(tmp_path)
    state.prepare()
    services = Services(registry="unix:/r", router="unix:/o", edge="127.0.0.1:1")
    state.write_services(services)
    with pytest.raises(UnavailableError, match=" runs on "):
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
