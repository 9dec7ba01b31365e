"""An engine that runs on a scripted runner, and callers who collect what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest, RequestId, Update
from services.worker.llm.drivers.engine import Engine
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, scripted_model

PATIENCE = 60.0  # seconds until a test gives up


@dataclass(slots=True)
class Meter:
    """Keeps all facts."""

    steps: list[StepFacts] = field(default_factory=list)
    requests: list[RequestFacts] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    async def have_ended(self, count: int) -> None:
        """Until so many requests have ended."""
        async with asyncio.timeout(PATIENCE):
            while len(self.requests) < count:
                self._more.clear()
                await self._more.wait()

    def stepped(self, facts: StepFacts) -> None:
        self.steps.append(facts)

    def ended(self, facts: RequestFacts) -> None:
        self.requests.append(facts)
        self._more.set()


@dataclass(slots=True, eq=False)
class Caller:
    """What the caller of one request is told."""

    engine: Engine
    updates: list[Update] = field(default_factory=list)
    number: RequestId | None = None
    _told: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def submit(self, request: GenerationRequest) -> Caller:
        self.number = self.engine.submit(request, self._deliver)
        return self

    def abort(self) -> None:
        assert self.number is not None
        self.engine.abort(self.number)

    async def told(self) -> None:
        """Until the first update."""
        await asyncio.wait_for(self._told.wait(), PATIENCE)

    async def ended(self) -> Update:
        """The last update."""
        await asyncio.wait_for(self._ended.wait(), PATIENCE)
        return self.updates[-1]

    def tokens(self, index: int = 0) -> list[int]:
        pieces = (piece for update in self.updates for piece in update.pieces)
        return [token for piece in pieces if piece.index == index for token in piece.token_ids]

    def text(self, index: int = 0) -> str:
        pieces = (piece for update in self.updates for piece in update.pieces)
        return "".join(piece.text for piece in pieces if piece.index == index)

    def _deliver(self, update: Update) -> None:
        assert not self._ended.is_set(), "told after its end"
        self.updates.append(update)
        self._told.set()
        if update.summary is not None or update.error is not None:
            self._ended.set()


@asynccontextmanager
async def running(
    runner: ScriptedRunner, settings: EngineSettings | None = None
) -> AsyncIterator[tuple[Engine, Meter]]:
    """The engine; closed at the end."""
    meter = Meter()
    engine = Engine(scripted_model(runner), settings or EngineSettings(), meter)
    task = asyncio.create_task(engine.run())
    await asyncio.sleep(0)  # its thread starts
    try:
        yield engine, meter
    finally:
        if runner.hold is not None:
            runner.hold.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
