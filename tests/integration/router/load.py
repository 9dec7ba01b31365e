"""Callers that keep calling, and what became of their calls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc


class Infers(Protocol):
    """Makes one call."""

    async def infer(self) -> Any:
        """The answer."""


@dataclass(slots=True)
class Outcome:
    """Counts by version that answered, and failures by text."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    last: str = ""  # version of the newest answer
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def total(self) -> int:
        return self.answers.total() + self.failures.total()

    async def more(self, count: int, seconds: float = 60.0) -> None:
        """Wait until `count` more calls have ended."""
        goal = self.total + count
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: self.total >= goal)


@asynccontextmanager
async def callers(edge: Infers, count: int = 8) -> AsyncIterator[Outcome]:
    """`count` callers that call one after the other until the block ends."""
    outcome, stop = Outcome(), asyncio.Event()

    async def call() -> None:
        while not stop.is_set():
            try:
                response = await edge.infer()
                outcome.last = response.model_version
                outcome.answers[response.model_version] += 1
            except grpc.aio.AioRpcError as error:
                outcome.failures[f"{error.code().name}: {error.details()}"] += 1
            async with outcome.changed:
                outcome.changed.notify_all()

    tasks = [asyncio.create_task(call()) for _ in range(count)]
    try:
        yield outcome
    finally:
        stop.set()
        await asyncio.gather(*tasks)
