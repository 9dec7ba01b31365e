"""An echo worker as a process that a test can kill: `python -m tests.integration.router.echo_process`."""

import asyncio
import sys

from tests.integration.router.echo_worker import EchoWorker


async def _serve(name: str, address: str, *versions: str) -> None:
    """Serve under this name until killed."""
    await EchoWorker(name, address).start(*versions)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
