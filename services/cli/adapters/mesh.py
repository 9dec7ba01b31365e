"""The processes of a mesh on this machine: what each is started with."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from services.cli.adapters import envoy
from services.cli.adapters.edge_target import edge_tls
from services.cli.adapters.readiness import wait_serving
from services.cli.adapters.state_directory import Services, StateDirectory
from services.cli.drivers.child import Child, ChildSpec, Start
from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.settings import PREFIX, Settings, environment_for_children, load
from services.rpc.tcp_ports import free_port, is_free

_ENVOY_HEAP = 2 * 1024 * 1024 * 1024  # bytes


class _Place(Settings):
    """Where this machine is; its workers read the same variable."""

    zone: str = ""


def cores() -> int:
    """Processor cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """What `up` was asked for."""

    edge: Address
    workers: int
    pool: str
    auth: str  # "required", or "off": nobody needs a key
    drain_seconds: float
    log_level: str


@dataclass(slots=True)
class Mesh:
    """Builds the children of one `up`; remembers where Envoy tells its metrics."""

    state: StateDirectory
    settings: MeshSettings
    _envoy_metrics: Address | None = field(default=None, init=False)
    _module: bool | None = field(default=None, init=False)

    @property
    def admin(self) -> Address:
        """Envoy's admin interface: a socket, for whoever reaches it can stop Envoy."""
        return Address(path=str(self.state.sockets / "envoy-admin.sock"))

    @property
    def services(self) -> Services:
        """Where the services listen."""
        sockets = self.state.sockets
        return Services(
            registry=f"unix:{sockets / 'registry.sock'}",
            router=f"unix:{sockets / 'router.sock'}",
            edge=str(self.settings.edge),
            metering=f"unix:{sockets / 'metering.sock'}",
            edge_is_secure=edge_tls().is_on,
        )

    def stages(self) -> list[list[ChildSpec]]:
        """All children in the order in which they are ended."""
        numbers = range(1, self.settings.workers + 1)
        return [
            [self._spec("envoy", self._envoy, gate=True)],
            [self._worker_spec(number) for number in numbers],
            [self._spec("router", self._router)],
            # Last, as workers tell what they counted while they end.
            [self._spec("registry", self._registry), self._spec("metering", self._metering)],
        ]

    def _spec(self, name: str, prepare: Any, *, gate: bool = False) -> ChildSpec:
        async def router_serves() -> None:
            # An Envoy whose first connect to the router fails would try again only after its own back-off.
            await wait_serving(self.services.router)

        log = self.state.logs / f"{name}.log"
        return ChildSpec(name, prepare, log, router_serves if gate else None)

    def _worker_spec(self, number: int) -> ChildSpec:
        def prepare(start: int) -> Start:
            socket = self.state.sockets / f"worker-{number}-{start}.sock"
            variables = {"worker_address": f"unix:{socket}", "pool": self.settings.pool}
            return self._python("worker", variables, (socket,))

        return self._spec(f"worker-{number}", prepare)

    def _registry(self, _start: int) -> Start:
        return self._python("registry", {})

    def _metering(self, _start: int) -> Start:
        return self._python("metering", {})

    def _router(self, _start: int) -> Start:
        variables = {
            "edge_module": str(self._has_module()).lower(),
            "edge_auth": self.settings.auth,
        }
        return self._python("router", variables)

    def _python(
        self, service: str, variables: dict[str, str], sockets: tuple[Path, ...] = ()
    ) -> Start:
        metrics = f"127.0.0.1:{free_port()}"
        environment = environment_for_services(
            **service_variables(self.services, self.state.path),
            **variables,
            metrics_address=metrics,
            drain_seconds=f"{self.settings.drain_seconds:g}",
            log_style="json",
            log_level=self.settings.log_level,
        )
        command = (sys.executable, "-m", f"services.{service}")
        return Start(command, environment, metrics, sockets=sockets)

    def _envoy(self, _start: int) -> Start:
        metrics = self._metrics_of_envoy()
        bootstrap = self.state.run / "envoy.yaml"
        envoy.render_bootstrap(bootstrap, self._bootstrap_values(metrics))
        command = envoy.arguments(bootstrap, cores())
        environment = {**environment_for_services(), "TZ": "UTC"}
        if self._has_module():
            environment[envoy.MODULE_PATH] = str(self.state.run)
        return Start(command, environment, str(metrics), sockets=(Path(str(self.admin.path)),))

    def _has_module(self) -> bool:
        """The same for router and Envoy, as long as the mesh lives."""
        if self._module is None:
            self._module = envoy.install_module(self.state.run)
        return self._module

    def _metrics_of_envoy(self) -> Address:
        """The same at each start, so that the bootstrap stays as it is, unless somebody took the port meanwhile."""
        known = self._envoy_metrics
        if known is None or not is_free(known):
            self._envoy_metrics = known = Address(host="127.0.0.1", port=free_port())
        return known

    def _bootstrap_values(self, metrics: Address) -> dict[str, str]:
        """Values of the placeholders that deploy/envoy/bootstrap.yaml lists at its top."""
        heap = min(_ENVOY_HEAP, psutil.virtual_memory().total // 2)
        return {
            "node_id": json.dumps(f"edge-{os.getpid()}"),
            "admin_address": envoy.address_value(self.admin),
            "metrics_address": envoy.address_value(metrics),
            "zone": json.dumps(load(_Place).zone),
            **envoy.router_values([addresses.parse(self.services.router)]),
            "router_tls": "null",  # a socket's folder guards it
            "max_heap_bytes": str(heap),
        }


def environment_for_services(**variables: str) -> dict[str, str]:
    """The environment of a service: without the key of whoever started it, which is no service's to have.

    Nor is it told where it is reached: here each is where it listens.
    """
    environment = environment_for_children(**variables)
    for name in ("API_KEY", "ADVERTISED_ADDRESS"):
        environment.pop(f"{PREFIX}{name}", None)
    return environment


def service_variables(services: Services, state_dir: Path) -> dict[str, str]:
    """Settings by which a service finds the others."""
    return {
        "registry_address": services.registry,
        "discovery_address": services.registry,
        "router_address": services.router,
        "metering_address": services.metering,
        "edge_address": services.edge,
        "state_dir": str(state_dir),
    }


def metrics_targets(children: list[Child]) -> list[dict[str, Any]]:
    """Where the running children tell their metrics, in the format of Prometheus's file_sd."""
    targets = []
    for child in children:
        start = child.start
        if child.pid is None or start is None or not start.metrics_address:
            continue
        labels = {"service": child.spec.name.partition("-")[0], "process": child.spec.name}
        targets.append({"targets": [start.metrics_address], "labels": labels})
    return targets
