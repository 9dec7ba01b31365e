"""A real `inferplane up` in a process of its own, as tests start, watch and end it."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from services.cli.__main__ import main
from services.cli.adapters import access
from services.cli.adapters.state_directory import RunningProcess, StateDirectory
from services.rpc.tcp_ports import free_port

DEADLINE = 120.0
_CLI = [sys.executable, "-m", "services.cli"]


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """One command of the command line, to its end."""
    return subprocess.run(
        [*_CLI, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        input=stdin,
        env={**clean_environment(), **environment},
    )


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_inside(*arguments: str, stdin: str = "", **environment: str) -> Done:
    """One command in this process, which saves the start of an interpreter."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in set(os.environ) - set(clean_environment()):
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        code = main(arguments)
    return Done(code, out.getvalue(), err.getvalue())


def clean_environment() -> dict[str, str]:
    """The environment without settings of the person who runs the tests."""
    return {k: v for k, v in os.environ.items() if not k.startswith("INFERPLANE_")}


@dataclass
class RunningMesh:
    """An `up` at work; `lines` is what it has told."""

    process: subprocess.Popen[str]
    state: StateDirectory
    port: int
    lines: list[str] = field(default_factory=list)
    _told: threading.Condition = field(default_factory=threading.Condition)

    @property
    def address(self) -> str:
        """The edge's address."""
        return f"127.0.0.1:{self.port}"

    def read(self) -> None:
        """Take what it tells, to the end."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._told:
                self.lines.append(line.rstrip("\n"))
                self._told.notify_all()

    def until(self, pattern: str, count: int = 1) -> list[str]:
        """Wait until so many lines match; returns them."""
        expression = re.compile(pattern)

        def matching() -> list[str]:
            return [line for line in self.lines if expression.search(line)]

        self.wait(lambda: len(matching()) >= count)
        return matching()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the lines."""
        with self._told:
            if not self._told.wait_for(condition, DEADLINE):
                raise AssertionError("it never told; it told:\n" + "\n".join(self.lines))

    def key(self) -> AbstractContextManager[None]:
        """Within it this process itself calls with the first admin's key; threads need a copy of the context."""
        return access.given(self.state.read_admin_key(), "the test")

    def cli(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command against this mesh."""
        return run(
            *arguments,
            stdin=stdin,
            INFERPLANE_ADDRESS=self.address,
            INFERPLANE_STATE_DIR=str(self.state.path),
        )

    def cli_inside(self, *arguments: str, stdin: str = "") -> Done:
        """The same in this process."""
        return run_inside(
            *arguments,
            stdin=stdin,
            INFERPLANE_ADDRESS=self.address,
            INFERPLANE_STATE_DIR=str(self.state.path),
        )

    def processes(self) -> list[RunningProcess]:
        """It and everything below it, as it is now."""
        supervisor = psutil.Process(self.process.pid)
        found = [supervisor, *supervisor.children(recursive=True)]
        records = [RunningProcess.of(p.name(), p.pid) for p in found]
        return [record for record in records if record is not None]

    def pid(self, name: str) -> int:
        """Pid of a child by its name."""
        return next(p.pid for p in self.state.processes() if p.name == name)


@contextmanager
def running_mesh(folder: Path, *options: str, **environment: str) -> Iterator[RunningMesh]:
    """An `up` that answers; it is ended at the end, and it must then leave nothing."""
    port = free_port()
    process = subprocess.Popen(
        [*_CLI, "up", "--edge-port", str(port), "--state-dir", str(folder), *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), **environment},
        start_new_session=True,
    )
    mesh = RunningMesh(process, StateDirectory(folder), port)
    reader = threading.Thread(target=mesh.read)
    reader.start()
    try:
        mesh.until("Ctrl-C stops it")
        yield mesh
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEADLINE)
        finally:
            process.kill()
            process.wait()
            reader.join(DEADLINE)
            assert process.stderr is not None
            process.stderr.close()
