"""Parts that several tests of the command line use: a listening narration, and small programs to supervise."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from services.cli.drivers.child import ChildSpec, Start

_DEADLINE = 60.0


class HeardNarration:
    """A narration that remembers what it was told and lets tests wait for it."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def line(self, service: str, raw: str) -> None:
        self._hear("line", service, raw.strip())

    def started(self, service: str, pid: int) -> None:
        self._hear("started", service, pid)

    def died(self, service: str, how: str, restart_in: float, last_lines: list[str]) -> None:
        self._hear("died", service, how, restart_in, last_lines)

    def stopped(self, service: str, how: str) -> None:
        self._hear("stopped", service, how)

    def _hear(self, *event: Any) -> None:
        self.events.append(event)
        task = asyncio.ensure_future(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def of(self, kind: str, service: str | None = None) -> list[tuple[Any, ...]]:
        """Events of one kind."""
        return [e for e in self.events if e[0] == kind and service in (None, e[1])]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until the condition holds, looking whenever something was told."""
        async with asyncio.timeout(_DEADLINE), self._changed:
            await self._changed.wait_for(condition)


Spec = Callable[..., ChildSpec]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Makes a child that runs a piece of Python."""

    def make(name: str, code: str, gate: Callable[[], Awaitable[None]] | None = None) -> ChildSpec:
        def prepare(number: int) -> Start:
            return Start((sys.executable, "-S", "-c", code), {"START": str(number)}, "")

        return ChildSpec(name, prepare, tmp_path / f"{name}.log", gate)

    return make


@pytest.fixture
async def heard() -> HeardNarration:
    """A narration that tests can wait on."""
    return HeardNarration()
