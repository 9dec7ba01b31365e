"""The engine as its callers see it, on a scripted runner."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest, Update
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.drivers.engine import Engine
from tests.unit.worker.llm.scripted_runner import (
    ScriptedRunner,
    capacity,
    continued,
    scripted_model,
    text_of,
)


@dataclass(slots=True)
class Meter:
    steps: list[StepFacts] = field(default_factory=list)
    requests: list[RequestFacts] = field(default_factory=list)

    def stepped(self, facts: StepFacts) -> None:
        self.steps.append(facts)

    def ended(self, facts: RequestFacts) -> None:
        self.requests.append(facts)


@asynccontextmanager
async def running(
    runner: ScriptedRunner, **settings: object
) -> AsyncIterator[tuple[Engine, Meter]]:
    meter = Meter()
    engine = Engine(scripted_model(runner), EngineSettings(**settings), meter)  # type: ignore[arg-type]
    task = asyncio.create_task(engine.run())
    try:
        yield engine, meter
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def finished(engine: Engine, request: GenerationRequest) -> list[Update]:
    updates: list[Update] = []
    ended = asyncio.Event()

    def deliver(update: Update) -> None:
        updates.append(update)
        if update.summary is not None:
            ended.set()

    engine.submit(request, deliver)
    await asyncio.wait_for(ended.wait(), 10)
    return updates


async def test_a_text_is_continued() -> None:
    """All pieces together are what the model says."""
    async with running(ScriptedRunner(capacity())) as (engine, _):
        request = GenerationRequest(
            prompt=tuple(b"hello world"), sampling=SamplingSettings(max_tokens=20, temperature=0.0)
        )
        updates = await finished(engine, request)
    said = "".join(piece.text for update in updates for piece in update.pieces)
    assert said == text_of(continued(b"hello world", 20))
