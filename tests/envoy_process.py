"""A real Envoy as a test sees it: rendered bootstrap, process, admin interface, stop."""

import asyncio
import json
import os
import string
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from services.cli.adapters import envoy
from services.native_library import EDGE
from services.rpc import address as addresses

_BOOTSTRAP = Path(__file__).parents[1] / "deploy" / "envoy" / "bootstrap.yaml"
_HEAP_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What Envoy knows from its start."""

    node_id: str = "edge-1"
    router: str  # or several, with commas between
    router_tls: str = "null"
    zone: str = ""


def render(place: Place, admin: str, metrics: str) -> str:
    """The bootstrap with its placeholders filled; addresses are `host:port` or `unix:/path`."""
    template = string.Template(_BOOTSTRAP.read_text())
    return template.substitute(
        node_id=json.dumps(place.node_id),
        zone=json.dumps(place.zone),
        admin_address=json.dumps(_socket(admin)),
        metrics_address=json.dumps(_socket(metrics)),
        **envoy.router_values(addresses.parse_peers(place.router)),
        router_tls=place.router_tls,
        max_heap_bytes=_HEAP_BYTES,
    )


def _socket(text: str) -> dict[str, Any]:
    parsed = addresses.parse(text)
    if parsed.path is not None:
        return {"pipe": {"path": parsed.path}}
    return {"socket_address": {"address": parsed.host, "port_value": parsed.port}}


@dataclass(slots=True)
class EnvoyProcess:
    """A running Envoy; `stop` ends it."""

    process: asyncio.subprocess.Process
    admin: Path  # socket of the admin interface
    log: Path

    @classmethod
    async def start(
        cls,
        folder: Path,
        router: str,
        node_id: str = "edge-1",
        threads: int = 1,
        **place: str,
    ) -> "EnvoyProcess":
        """Start one in `folder` (short enough for sockets) that asks `router`; it may not have a listener yet.

        `place` says more of what it knows from its start: see `Place`.
        """
        admin, log = folder / f"{node_id}.admin.sock", folder / f"{node_id}.log"
        config, metrics = folder / f"{node_id}.yaml", folder / f"{node_id}.metrics.sock"
        known = Place(node_id=node_id, router=router, **place)
        config.write_text(render(known, f"unix:{admin}", f"unix:{metrics}"))
        environment = dict(os.environ)
        if (module := EDGE.find()) is not None:
            environment["ENVOY_DYNAMIC_MODULES_SEARCH_PATH"] = str(module.parent)
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                Path(sys.executable).parent / "envoy",
                *("-c", config, "--concurrency", str(threads), "--disable-hot-restart"),
                *(
                    "--drain-time-s",
                    "2",
                    "--log-level",
                    "info",
                    "--file-flush-interval-msec",
                    "100",
                ),
                stdout=output,
                stderr=output,
                env=environment,
            )
        return cls(process, admin, log)

    async def ask(self, path: str, method: str = "GET") -> str:
        """The admin interface's answer."""
        reader, writer = await asyncio.open_unix_connection(self.admin)
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer.partition(b"\r\n\r\n")[2].decode()

    async def counter(self, name: str) -> int:
        """A statistic by its full name; 0 if there is none yet."""
        for line in (await self.ask(f"/stats?filter=^{quote(name)}$")).splitlines():
            if line.startswith(f"{name}: "):
                return int(line.rpartition(" ")[2])
        return 0

    async def ready(self, seconds: float = 100.0) -> None:
        """Wait until Envoy has its configuration and listens."""
        async with asyncio.timeout(seconds):
            while True:
                if self.process.returncode is not None:
                    raise AssertionError(f"envoy ended: {self.log.read_text()[-4000:]}")
                try:
                    if "edge::" in await self.ask("/listeners"):
                        return
                except OSError:
                    pass  # the admin socket is not there yet
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End it."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
