"""The screen of `status`: once, or again and again."""

import asyncio
import json
import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from services.cli.adapters.edge import Edge
from services.cli.adapters.status_reader import StatusReader
from services.cli.adapters.status_view import render
from services.rpc.errors import UnavailableError


async def show_once(edge: Edge, interval: float, *, as_json: bool) -> None:
    """Print one picture; looks twice, so that there are rates."""
    reader = StatusReader(edge)
    await reader.read()
    await asyncio.sleep(interval)
    status = await reader.read()
    if as_json:
        text = json.dumps(status.as_dict(), indent=2, ensure_ascii=False)
        sys.stdout.write(text + "\n")
        return
    width = None if sys.stdout.isatty() else 200  # a pipe has no width: nothing is to be cut
    Console(highlight=False, width=width).print(render(status))


async def show_live(edge: Edge, interval: float) -> None:
    """Refresh until interrupted; outlives a restart of the edge once it was there."""
    reader = StatusReader(edge)
    first = await reader.read()
    with Live(render(first), screen=True, auto_refresh=False) as live:
        while True:
            live.refresh()
            await asyncio.sleep(interval)
            try:
                live.update(render(await reader.read()))
            except UnavailableError as error:
                live.update(Text(error.message, style="bold red"))
