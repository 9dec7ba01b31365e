"""Starting and stopping the mesh of this machine: in this process, or detached from the terminal."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from services.cli.adapters import port_owner
from services.cli.adapters.edge_target import EdgeTarget, edge_tls, from_here
from services.cli.adapters.launch import Launch, Ready
from services.cli.adapters.mesh import MeshSettings, cores
from services.cli.adapters.narrator import Narrator
from services.cli.adapters.state_directory import RunningProcess, StateDirectory
from services.cli.domain import log_line
from services.cli.domain.exit_code import StartError, UsageError
from services.cli.drivers.log_file import LogFile
from services.rpc import address as addresses
from services.rpc import names
from services.rpc.address import Address
from services.rpc.errors import DeadlineExceededError, UnavailableError
from services.rpc.settings import PREFIX, environment_for_children
from services.rpc.tcp_ports import free_port

_DEFAULT_EDGE = "127.0.0.1:8080"
_LAST_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOrder:
    """What `up` was asked for."""

    state: StateDirectory
    edge: Address
    workers: int | None  # None: by cores
    pool: str
    auth: str
    drain_seconds: float
    ready_seconds: float
    log_level: str
    verbose: bool
    ready_fd: int | None  # where the detached process tells how its start went

    @property
    def mesh(self) -> MeshSettings:
        """The mesh that is to run."""
        workers = min(2, cores()) if self.workers is None else self.workers
        return MeshSettings(
            edge=self.edge,
            workers=workers,
            pool=self.pool,
            auth=self.auth,
            drain_seconds=self.drain_seconds,
            log_level=self.log_level,
        )


def edge_of(address: str, port: int | None) -> Address:
    """The edge's address, with another port if one is given; port 0 becomes a free one."""
    edge = addresses.parse(address, "--edge-address")
    if edge.path is not None:
        raise UsageError(f"--edge-address {address}: allowed: HOST:PORT")
    if port is not None:
        edge = Address(host=edge.host, port=port)
    return edge if edge.port else Address(host=edge.host, port=free_port(edge.host))


def run_here(order: UpOrder) -> None:
    """Run the mesh until it is asked to end."""
    names.check_id("--pool", order.pool)
    # gRPC's own fork handlers, read from here by its C core, only warn on the terminal: children exec at once.
    os.putenv("GRPC_ENABLE_FORK_SUPPORT", "0")
    narrator = Narrator(verbose=order.verbose)
    narrator.begin()

    def on_ready(ready: Ready) -> None:
        for line in summary(ready, order):
            narrator.say(line)
        if order.ready_fd is not None:
            _tell(order.ready_fd, {"seconds": ready.seconds})

    try:
        Launch(order.state, order.mesh, narrator, on_ready, order.ready_seconds).run()
        narrator.say("stopped")
    except StartError as error:
        if order.ready_fd is not None:
            told = {"error": error.message, "reason": error.reason, "metadata": error.metadata}
            _tell(order.ready_fd, told)
        raise
    finally:
        narrator.end()


def summary(ready: Ready, order: UpOrder) -> list[str]:
    """What is listening, and what to do next."""
    workers = f"{ready.workers} in pool {ready.pool}"
    is_secure = edge_tls().is_on
    called = from_here(ready.edge, is_secure=is_secure)
    lines = [
        f"inferplane answers after {ready.seconds:.1f} s",
        f"  edge     {EdgeTarget(addresses.parse(ready.edge), is_secure)} (gRPC, REST, OpenAI's API)",
        f"  workers  {workers}",
        f"  keys     {_about_keys(order)}",
        f"  state    {order.state.path}",
    ]
    if not (is_secure or order.edge.is_loopback):
        lines.append("  plain    who listens on the way reads keys: INFERPLANE_EDGE_CERTIFICATE")
    lines.append("next:")
    if called != _DEFAULT_EDGE:
        lines.append(f"  export INFERPLANE_ADDRESS={called}")
    if authority := edge_tls().authority_beside:
        lines.append(f"  export INFERPLANE_CA={shlex.quote(str(authority))}")
    lines += [
        "  inferplane models push NAME PATH      upload a model",
        "  inferplane deploy NAME@1              serve it",
        "  inferplane status                     watch it",
    ]
    stop = "inferplane down stops it" if order.ready_fd is not None else "Ctrl-C stops it"
    return [*lines, stop]


def _about_keys(order: UpOrder) -> str:
    """How callers are let in; a token is never printed here."""
    if order.auth == "off":
        return "none needed (--auth off): whoever reaches the edge is let in"
    key = shlex.quote(str(order.state.admin_key))
    return f"needed; the first one: export INFERPLANE_API_KEY=$(cat {key})"


def _tell(descriptor: int, value: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "w") as pipe:
        pipe.write(json.dumps(value))


def run_detached(order: UpOrder) -> None:
    """Start the mesh in a session of its own; returns when it answers, StartError if it does not."""
    order.state.prepare()
    with order.state.held():  # who is refused writes into no log of the one that runs
        port_owner.check_free(order.edge)
    log = order.state.logs / "supervisor.log"
    opened = LogFile(log)
    opened.open()  # moves a large one aside
    opened.close()
    reading, writing = os.pipe()
    with log.open("ab") as output:
        process = subprocess.Popen(
            _command(order, writing),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
            env=_environment(),
        )
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            told = pipe.read()  # ends when it has told, or has died
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if not told:
        end = "\n".join(_tail(log))
        raise StartError(f"it ended before it answered; the end of {log}:\n{end}")
    value = json.loads(told)
    if "error" in value:
        process.wait()
        _show_end_of_log(value["metadata"])
        raise StartError(value["error"], reason=value["reason"], metadata=value["metadata"])
    process.returncode = 0  # it goes on; nothing here waits for it
    ready = Ready(value["seconds"], str(order.edge), order.mesh.workers, order.pool)
    told_order = UpOrder(**{**_fields(order), "ready_fd": 0})
    sys.stderr.write("\n".join(summary(ready, told_order)) + "\n")


def _show_end_of_log(metadata: Mapping[str, str]) -> None:
    """What a service that dies again and again has said; `up` in the foreground shows it as it happens."""
    if "log" not in metadata:
        return
    service = metadata["service"]
    sys.stderr.write(f"{service} dies again and again. The end of its log:\n")
    for raw in _tail(Path(metadata["log"])):
        sys.stderr.write(f"  {log_line.parse(service, raw).text}\n")


def _fields(order: UpOrder) -> dict[str, Any]:
    return {name: getattr(order, name) for name in UpOrder.__dataclass_fields__}


def _environment() -> dict[str, str]:
    """Without what the command line below says already, resolved."""
    environment = environment_for_children()
    for name in ("DETACH", "EDGE_PORT"):
        environment.pop(PREFIX + name, None)
    return environment


def _command(order: UpOrder, ready_fd: int) -> list[str]:
    options = {
        "--state-dir": order.state.path,
        "--edge-address": order.edge,
        "--workers": order.mesh.workers,
        "--pool": order.pool,
        "--auth": order.auth,
        "--drain-seconds": f"{order.drain_seconds:g}",
        "--timeout": f"{order.ready_seconds:g}",
        "--log-level": order.log_level,
        "--ready-fd": ready_fd,
    }
    flat = [str(part) for pair in options.items() for part in pair]
    verbose = ["--verbose"] if order.verbose else []
    return [sys.executable, "-m", "services.cli", "up", *flat, *verbose]


def _tail(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-_LAST_LINES:]


def stop(state: StateDirectory, seconds: float) -> str:
    """Stop the mesh of a state directory; tells what came of it."""
    record = state.supervisor()
    process = record.find() if record else None
    if record is None or process is None:
        return _clean(state)
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGTERM)
    if not record.wait(seconds):
        raise DeadlineExceededError(
            f"process {process.pid} has not ended within {seconds:g} s; a second"
            " inferplane down makes it end at once"
        )
    return f"stopped the mesh on {state.path} (pid {process.pid})"


def _clean(state: StateDirectory) -> str:
    """Remove what a dead supervisor left; tells what there was."""
    left: list[RunningProcess] = []
    try:
        with state.held():
            left = state.end_leftovers()
            state.forget_run()
    except StartError as error:
        if error.reason != "ALREADY_RUNNING":
            raise
        raise UnavailableError(
            f"the mesh on {state.path} is just starting or ending; try again"
        ) from error
    except FileNotFoundError:  # nothing was ever there
        pass
    ended = f"; ended {len(left)} left-over processes" if left else ""
    return f"{state.nothing_runs}{ended}"
