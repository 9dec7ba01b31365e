"""A registry as a process: started with variables, ended by a signal."""

import asyncio
import signal
import sys
from pathlib import Path

from services.rpc.settings import environment_for_children


async def launch(folder: Path, **variables: str) -> asyncio.subprocess.Process:
    given = {
        "state_dir": str(folder),
        "registry_address": f"unix:{folder}/run/registry.sock",
        "store_url": "",
        "metrics_address": "",
        "drain_seconds": "5",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.registry",
        env=environment_for_children(**{**given, **variables}),
        stderr=asyncio.subprocess.PIPE,
    )


async def end(process: asyncio.subprocess.Process, number: signal.Signals) -> tuple[int, str]:
    """Send a signal, wait for the end; exit code and what it said."""
    if process.returncode is None:
        process.send_signal(number)
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()
