"""A real Consul agent for tests, where its binary is found; without it tests say that they were skipped."""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.rpc.consul import ConsulAccess
from services.rpc.tcp_ports import free_port

_PATIENCE = 120.0  # seconds; a busy machine's
MANAGEMENT = "11111111-2222-3333-4444-555555555555"  # of an agent with ACLs


def binary() -> Path | None:
    """INFERPLANE_TEST_CONSUL, else on the PATH, else in the user's cache."""
    named = os.environ.get("INFERPLANE_TEST_CONSUL") or shutil.which("consul")
    if named:
        return Path(named)
    found = sorted((Path.home() / ".cache").glob("consul-*/usr/bin/consul"))
    return found[-1] if found else None


needs_consul = pytest.mark.skipif(
    binary() is None, reason="no Consul: set INFERPLANE_TEST_CONSUL to its binary"
)


async def eventually(question: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Wait until the answer is yes; fail with `what` when a busy machine's patience is over."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                answer = question()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(0.02)  # between two looks at another process
    except TimeoutError:
        raise AssertionError(f"not within {_PATIENCE:g} s: {what}") from None


@dataclass(slots=True)
class ConsulAgent:
    """A development agent, which forgets all when it ends: one server, no disk."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    scheme: str = "http"
    ca_file: Path | None = None
    token: str = ""
    port: int = field(default_factory=free_port)
    serf: int = field(default_factory=free_port)
    server: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def access(self) -> ConsulAccess:
        return ConsulAccess(urls=(self.url,))

    @property
    def ports(self) -> dict[str, int]:
        http = {"http": self.port} if self.scheme == "http" else {"http": -1, "https": self.port}
        return {
            **http,
            "dns": -1,
            "grpc": -1,
            "serf_lan": self.serf,
            "serf_wan": -1,
            "server": self.server,
        }

    async def start(self) -> None:
        """Start it and wait until it has a leader."""
        self.launch()
        await eventually(self.has_leader, "the agent has a leader")

    def launch(self) -> None:
        """Start it."""
        name = f"agent-{self.port}"
        config = {"ports": self.ports, "node_name": name, "log_level": "warn", **self.config}
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(config))
        program = binary()
        assert program is not None
        mode = [] if "data_dir" in config else ["-dev"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    "agent",
                    *mode,
                    "-bind",
                    "127.0.0.1",
                    "-client",
                    "127.0.0.1",
                    "-config-file",
                    file,
                ],
                stdout=log,
                stderr=log,
            )

    async def has_leader(self) -> bool:
        """Whether it answers, and has one."""
        try:
            return bool(await self.ask("status/leader"))
        except httpx.HTTPError:
            return False

    async def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Its answer to any question."""
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else False
        headers = {"X-Consul-Token": self.token} if self.token else {}
        async with httpx.AsyncClient(trust_env=False, verify=verify, headers=headers) as client:
            answer = await client.request(method, f"{self.url}/v1/{path}", json=body, timeout=30)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    async def allow(self, secret: str, rules: str) -> None:
        """Make a token with these rules."""
        policy = await self.ask("acl/policy", "PUT", {"Name": f"p{secret[:8]}", "Rules": rules})
        body = {"SecretID": secret, "Policies": [{"ID": policy["ID"]}]}
        await self.ask("acl/token", "PUT", body)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """Stop it without ending its connections."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


ACLS: dict[str, Any] = {
    "acl": {
        "enabled": True,
        "default_policy": "deny",
        "tokens": {"master": MANAGEMENT},
    }
}
