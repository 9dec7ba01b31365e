"""Runs an edge until SIGTERM or SIGINT: `python -m services.cli.edge`, as containers do."""

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from services.cli.adapters import envoy
from services.cli.edge import place
from services.cli.edge.settings import EdgeSettings
from services.native_library import EDGE
from services.rpc.errors import InferplaneError
from services.rpc.server import stop_requested
from services.rpc.settings import SettingsError, environment_for_children, load
from services.rpc.telemetry import configure_logs

_log = structlog.get_logger("services.cli.edge")

_LAST_SECONDS = 5.0  # for Envoy's own end


async def run(settings: EdgeSettings) -> int:
    """Envoy's exit status, or 0 if it was asked to stop."""
    stop = stop_requested()
    async with AsyncExitStack() as stack:
        folder = settings.edge_run_dir or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="inferplane-edge-"))
        )
        bootstrap = place.furnish(folder, settings)
        process = await asyncio.create_subprocess_exec(
            *envoy.arguments(bootstrap, settings.edge_threads or len(os.sched_getaffinity(0))),
            env=_environment(),
            # Ctrl-C at a terminal reaches the whole group: Envoy is told by us alone, once it is drained.
            start_new_session=True,
        )
        ended = asyncio.ensure_future(process.wait())
        asked = asyncio.ensure_future(stop.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ended.done():
            _log.error("envoy has ended", status=ended.result())
            return ended.result() or 1
        _log.info("draining", seconds=settings.drain_seconds)
        linger = min(settings.edge_linger_seconds, settings.drain_seconds)
        await envoy.retire(place.admin_socket(folder), linger, settings.drain_seconds)
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(ended, _LAST_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
    return 0


def _environment() -> dict[str, str]:
    """Envoy's: with the folder of our module, where it was built."""
    module = EDGE.find()
    found = {} if module is None else {envoy.MODULE_PATH: str(module.parent)}
    return {**environment_for_children(), "TZ": "UTC", **found}


def main() -> int:
    """Read settings and run; returns the exit status."""
    try:
        settings = load(EdgeSettings)
        configure_logs(service="edge", level=settings.log_level)
        return asyncio.run(run(settings))
    except (InferplaneError, SettingsError) as error:
        sys.stderr.write(f"edge: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
