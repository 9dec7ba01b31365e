"""A whole inferplane on this machine, started and driven as a user would: by its command line."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import psutil

from services.cli.adapters.keyed_channel import KeyedChannel
from services.rpc import channel as channels
from services.rpc.tcp_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
_LONGEST_COMMAND = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class Mesh:
    """A running `inferplane up` with its state directory and edge address."""

    state_dir: Path
    address: str
    supervisor: int  # pid
    variables: Mapping[str, str] = field(default_factory=dict)  # more of the environment

    @property
    def token(self) -> str:
        """The first admin's key."""
        return (self.state_dir / "admin.key").read_text().strip()

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What a call carries to be let in: metadata by gRPC, headers by HTTP."""
        return (("authorization", f"Bearer {self.token}"),)

    def channel(
        self, token: str | None = None, options: Sequence[tuple[str, Any]] = ()
    ) -> grpc.Channel:
        """A channel whose calls carry the first admin's key, or another."""
        plain = grpc.insecure_channel(self.address, options=[*options])
        metadata = self.key if token is None else (("authorization", f"Bearer {token}"),)
        return grpc.intercept_channel(plain, _Keyed(metadata))

    def async_channel(self) -> grpc.aio.Channel:
        """The same for calls on an event loop."""
        return KeyedChannel(channels.connect(self.address), self.key)

    def start_cli(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `inferplane ARGUMENTS` against this mesh."""
        return subprocess.Popen(
            [sys.executable, "-m", "services.cli", *arguments],
            env={**environment(self.state_dir, self.address), **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `inferplane ARGUMENTS` against this mesh and return what it printed."""
        with self.start_cli(*arguments) as process:
            try:
                out, err = process.communicate(timeout=_LONGEST_COMMAND)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"{arguments} took too long:\n{out}\n{err}") from None
        done = subprocess.CompletedProcess(arguments, process.returncode, out, err)
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}:\n{out}\n{err}")
        return done

    def json(self, *arguments: str) -> Any:
        """What a command prints with `--output json`, parsed."""
        return json.loads(self.cli(*arguments, "--output", "json").stdout)

    def well(self, version: str) -> int:
        """How many workers Envoy finds well for a version, by its resource name: it sends calls to no others."""
        (text,) = self.metrics("envoy")
        name = f'envoy_cluster_membership_healthy{{envoy_cluster_name="{version}"}} '
        return next(
            (int(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name)), 0
        )

    def metrics(self, service: str) -> list[str]:
        """What each process of a service tells on /metrics; OSError while one of them is away."""
        targets = json.loads((self.state_dir / "run" / "metrics-targets.json").read_text())
        told = []
        for target in (t["targets"][0] for t in targets if t["labels"]["service"] == service):
            with urlopen(f"http://{target}/metrics", timeout=60) as answer:
                told.append(str(answer.read(), "utf-8"))
        return told

    def processes(self, module: str) -> list[psutil.Process]:
        """Children of the supervisor that run `python -m MODULE`, or the program MODULE."""
        children = psutil.Process(self.supervisor).children(recursive=True)
        return [child for child in children if _runs(child, module)]


class _Keyed(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds metadata to every call."""

    def __init__(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_key(details), request)

    def intercept_unary_stream(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_key(details), request)

    def intercept_stream_stream(self, call: Any, details: Any, requests: Any) -> Any:
        return call(self._with_key(details), requests)

    def _with_key(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), *self._metadata))


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return module in command or (bool(command) and Path(command[0]).name == module)


def environment(state_dir: Path, address: str) -> dict[str, str]:
    """The environment in which commands find this mesh."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("INFERPLANE_")},
        "INFERPLANE_STATE_DIR": str(state_dir),
        "INFERPLANE_ADDRESS": address,
        "COLUMNS": "200",
    }


@contextmanager
def running(
    state_dir: Path, *, workers: int = 2, variables: Mapping[str, str] | None = None
) -> Iterator[Mesh]:
    """`inferplane up --detach` in its own state directory and on a free port; stopped by `down` at the end."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    mesh = Mesh(state_dir, address, 0, variables or {})
    mesh.cli("up", "--detach", "--workers", str(workers), "--edge-port", str(port))
    pid = int(json.loads((state_dir / "run" / "processes.json").read_text())[0]["pid"])
    try:
        yield replace(mesh, supervisor=pid)
    finally:
        mesh.cli("down")


def eventually(question: Callable[[], bool], *, seconds: float, what: str) -> float:
    """Ask until the answer is yes and return the seconds it took; fail with `what` when time is up."""
    begin = time.monotonic()
    while not question():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)  # between two looks at another process, which can't wake us
    return time.monotonic() - begin
