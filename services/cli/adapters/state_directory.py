"""The state directory of one `up`: where things lie in it, who holds it, what a dead holder left running."""

import fcntl
import hashlib
import json
import os
import select
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from services.cli.adapters import state_path
from services.cli.domain.exit_code import StartError
from services.rpc.errors import UnavailableError

_ALREADY_RUNNING = "ALREADY_RUNNING"
_SAME_START = 0.5  # seconds; two readings of one process's start time agree within this
_KILL_SECONDS = 5.0  # for a killed process to be gone


def default_path() -> Path:
    """Where state lies unless told otherwise."""
    return platformdirs.user_state_path("inferplane")


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process as it is written down: its pid alone could be somebody else's by now."""

    name: str
    pid: int
    started: float  # seconds since 1970, as psutil tells

    @classmethod
    def of(cls, name: str, pid: int) -> "RunningProcess | None":
        """What is to be written down of a process; None if it has ended."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    def find(self) -> psutil.Process | None:
        """The process, if it still is the same one."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _SAME_START
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; False if it has not within the time."""
        process = self.find()
        if process is None:
            return True
        if sys.platform == "linux":
            # Unlike waiting for the pid to vanish, this ends though nobody has reaped the process.
            try:
                descriptor = os.pidfd_open(self.pid)
            except ProcessLookupError:
                return True
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                return bool(poll.poll(seconds * 1000))
            finally:
                os.close(descriptor)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of a running `up`, for whoever joins it from this machine."""

    registry: str
    router: str
    edge: str
    metering: str = ""
    edge_is_secure: bool = False  # speaks TLS


class StateDirectory:
    """Paths below one state directory, and the records of what runs on it."""

    def __init__(self, path: Path) -> None:
        """Nothing is touched yet."""
        self.path = path.expanduser().absolute()
        self.logs = self.path / "logs"
        self.run = self.path / "run"
        self.admin_key = self.path / "admin.key"  # written by metering, once
        self._lock = self.path / "lock"
        self._processes = self.run / "processes.json"
        self._services = self.run / "services.json"
        self._targets = self.run / "metrics-targets.json"

    def prepare(self) -> None:
        """Make the folders; what runs is private to this user. StartError tells what is in the way."""
        state_path.check(self.path)
        with state_path.told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            _private_folder(self.run)
            _private_folder(self.sockets)
            made = [
                self.path,
                self.logs,
                self.run,
                self._lock,
                self.path / "registry",
                self.path / "metering",
            ]
            state_path.check_writable([*made, *self.logs.glob("*.log")])

    @property
    def sockets(self) -> Path:
        """Folder of the unix sockets: `run`, or one whose path is short and plain enough for addresses."""
        if state_path.holds_sockets(self.run):
            return self.run
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        name = f"inferplane-{os.getuid()}-{digest}"
        short = Path(tempfile.gettempdir()) / name
        return short if state_path.holds_sockets(short) else Path("/tmp") / name  # noqa: S108 - made private

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory; StartError tells who holds it already, FileNotFoundError that there is none."""
        descriptor = self._open_lock()
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise self._already_held() from error
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        try:
            return os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            raise
        except OSError:
            with state_path.told(self.path):
                raise

    def _already_held(self) -> StartError:
        holder = self.supervisor()
        who = f"process {holder.pid}" if holder else "another process"
        return StartError(
            f"inferplane is running on {self.path} already: {who} holds it."
            " Stop it with: inferplane down, or choose another --state-dir",
            reason=_ALREADY_RUNNING,
            metadata={"state_dir": str(self.path), "pid": str(holder.pid if holder else "")},
        )

    def is_held(self) -> bool:
        """Whether an `up` holds the directory now."""
        try:
            with self.held():
                return False
        except StartError as error:
            if error.reason != _ALREADY_RUNNING:
                raise
            return True
        except FileNotFoundError:
            return False

    @property
    def nothing_runs(self) -> str:
        """That no mesh runs here, and where one may run instead."""
        return (
            f"no mesh runs on {self.path}; if it runs elsewhere (the demo's does),"
            " say where with --state-dir or INFERPLANE_STATE_DIR"
        )

    def write_processes(self, processes: Sequence[RunningProcess]) -> None:
        """Write down what runs; the first is the supervisor."""
        _write_json(self._processes, [asdict(process) for process in processes])

    def processes(self) -> list[RunningProcess]:
        """What was written down, alive or not."""
        return [RunningProcess(**record) for record in _read_json(self._processes) or []]

    def supervisor(self) -> RunningProcess | None:
        """The supervisor that was written down, if it lives."""
        return next((p for p in self.processes()[:1] if p.find()), None)

    def write_services(self, services: Services) -> None:
        """Write down where the services are."""
        with state_path.told(self.path):
            _write_json(self._services, asdict(services))

    def services(self) -> Services:
        """Where the services of the running `up` are; UnavailableError if none runs."""
        record = _read_json(self._services)
        if record is None or not self.is_held():
            raise UnavailableError(
                f"{self.nothing_runs}\nTo start one: inferplane up",
                reason="NOT_RUNNING",
                metadata={"state_dir": str(self.path)},
            )
        return Services(**record)

    def running_services(self) -> Services | None:
        """Where the services of the running `up` are, if one runs; asks for no lock, so it is in nobody's way."""
        record = _read_json(self._services)
        return Services(**record) if record and self.supervisor() else None

    def read_admin_key(self) -> str:
        """The first key of the mesh; empty if there is none, or it is another user's."""
        try:
            return self.admin_key.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def write_metrics_targets(self, targets: Sequence[dict[str, Any]]) -> None:
        """Write what Prometheus is to scrape, in the format of its file_sd."""
        _write_json(self._targets, list(targets))

    def forget_run(self) -> None:
        """Remove the records of a run that is over, its sockets, and what its Envoy had loaded."""
        records = (self._processes, self._services, self._targets, self.run / "envoy.yaml")
        for path in (*records, *self.run.glob("*.so")):
            path.unlink(missing_ok=True)
        for socket in self.sockets.glob("*.sock"):
            socket.unlink(missing_ok=True)
        if self.sockets != self.run:
            with suppress(OSError):  # another user's, or something in it that is not ours
                self.sockets.rmdir()

    def end_leftovers(self) -> list[RunningProcess]:
        """End what a dead supervisor left running; only for the holder. Returns what was ended."""
        ended = []
        for record in self.processes():
            process = record.find()
            if process is None or record.pid == os.getpid():
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(record.pid, signal.SIGKILL)
            with suppress(psutil.NoSuchProcess):
                process.kill()
            record.wait(_KILL_SECONDS)
            ended.append(record)
        return ended


def _private_folder(path: Path) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise StartError(
            f"{path} exists and is not a folder of this user; remove it", reason="RUN_DIR_FOREIGN"
        )
    path.chmod(0o700)


def _write_json(path: Path, value: object) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(value, indent=1))
    partial.replace(path)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
