"""One more worker, joined to a running mesh of this machine."""

import os
import sys
from dataclasses import dataclass
from typing import NoReturn

from services.cli.adapters.mesh import environment_for_services, service_variables
from services.cli.adapters.state_directory import StateDirectory
from services.rpc import names
from services.rpc.tcp_ports import free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What the worker was asked to be."""

    pool: str
    zone: str  # empty: nowhere in particular
    drain_seconds: float
    log_level: str


def become_worker(state: StateDirectory, settings: WorkerSettings) -> NoReturn:
    """Replace this process by a worker, so that signals and exit code are its own."""
    names.check_id("--pool", settings.pool)
    services = state.services()
    socket = state.sockets / f"worker-x-{os.getpid()}.sock"
    environment = environment_for_services(
        **service_variables(services, state.path),
        worker_address=f"unix:{socket}",
        pool=settings.pool,
        zone=settings.zone,
        metrics_address=f"127.0.0.1:{free_port()}",
        drain_seconds=f"{settings.drain_seconds:g}",
        log_style="console" if sys.stderr.isatty() else "json",
        log_level=settings.log_level,
    )
    command = [sys.executable, "-m", "services.worker"]
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is meant
