"""A real worker process, started and ended by a test."""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from services.rpc import channel, settings


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that listens."""

    process: asyncio.subprocess.Process
    address: str
    channel: grpc.aio.Channel
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether it is still the same process."""
        return self.process.returncode is None

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    async def ended(self, seconds: float = 100.0) -> int:
        """Its exit status, once it has ended."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()


@asynccontextmanager
async def running(folder: Path, registry: str, **variables: str) -> AsyncIterator[WorkerProcess]:
    """Start a worker on a socket in `folder`; leaving kills it if it still runs."""
    name = f"w{secrets.token_hex(3)}"
    address, log = f"unix:{folder}/{name}.sock", folder / f"{name}.log"
    # A run of a few seconds may take several times as long where the machine is busy: it is not stuck.
    variables = {"stall_seconds": "120"} | variables
    environment = settings.environment_for_children(
        worker_address=address,
        registry_address=registry,
        state_dir=str(folder / "state"),
        log_level="debug",
        lease_seconds="1",  # beats every 0.2 s, so that tests see counters soon
        **variables,
    )
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.worker"),
            stdout=out,
            stderr=out,
            env=environment,
            cwd=os.fspath(folder),
        )
    try:
        async with channel.connect(address) as connected:
            async with asyncio.timeout(60):
                await connected.channel_ready()
            yield WorkerProcess(process, address, connected, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        sys.stderr.write(log.read_text())  # shown for tests that fail
