"""An engine in this process, and callers of it: they read to the end, go away, or have deadlines that pass."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from services.rpc.errors import Kind
from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest, RequestId, Update
from services.worker.llm.drivers.engine import Engine
from services.worker.llm.ports.language_model import LanguageModel

_LONGEST = 300.0  # seconds of one request
CACHE = Path("~/.cache/inferplane/benchmarks").expanduser()


@dataclass(slots=True)
class EngineSums:
    """An `EngineMeter` that keeps sums."""

    steps: int = 0
    preemptions: int = 0
    prefix_hits: int = 0
    prefix_queries: int = 0
    tokens: int = 0
    runner_seconds: float = 0.0
    own_seconds: float = 0.0
    outcomes: Counter[Kind | None] = field(default_factory=Counter)  # None: ended well
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def stepped(self, facts: StepFacts) -> None:
        self.steps += 1
        self.preemptions += facts.preemptions
        self.prefix_hits += facts.prefix_hits
        self.prefix_queries += facts.prefix_queries
        self.tokens += facts.generated_tokens
        self.runner_seconds += facts.seconds
        self.own_seconds += facts.own_seconds

    def ended(self, facts: RequestFacts) -> None:
        self.outcomes[facts.error] += 1
        self._more.set()

    async def have_ended(self, requests: int) -> None:
        """Until so many requests have ended."""
        async with asyncio.timeout(_LONGEST):
            while self.outcomes.total() < requests:
                self._more.clear()
                await self._more.wait()


@dataclass(slots=True, eq=False)
class Call:
    """One request, and what its caller has heard."""

    request: GenerationRequest
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # of the tokens, if that was asked for
    last: Update | None = None
    seconds: float = 0.0
    told_late: bool = False  # something was told after the end, or after the caller left
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_whole(self) -> bool:
        """Whether it ended well."""
        return self.last is not None and self.last.error is None

    async def made(self, engine: Engine, *, leave_after: float | None = None) -> Call:
        """Until it ends, or so many seconds have passed: then the caller goes away."""
        started = time.monotonic()
        number = engine.submit(replace(self.request, arrived=started), self._told)
        try:
            async with asyncio.timeout(_LONGEST if leave_after is None else leave_after):
                await self._over.wait()
        except TimeoutError:
            if leave_after is None:
                raise
            self._leave(engine, number)
        self.seconds = time.monotonic() - started
        return self

    def _leave(self, engine: Engine, number: RequestId) -> None:
        engine.abort(number)
        self._over.set()

    def _told(self, update: Update) -> None:
        self.told_late |= self._over.is_set()
        for piece in update.pieces:
            self.tokens += piece.token_ids
            self.logprobs += [token.logprob for token in piece.logprobs]
        if update.summary is not None or update.error is not None:
            self.last = update
            self._over.set()


@asynccontextmanager
async def running(
    model: LanguageModel, settings: EngineSettings
) -> AsyncIterator[tuple[Engine, EngineSums]]:
    """An engine that computes until the end of the block."""
    sums = EngineSums()
    engine = Engine(model, settings, sums)
    task = asyncio.create_task(engine.run())
    await asyncio.sleep(0)
    try:
        yield engine, sums
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def idle(engine: Engine, sums: EngineSums, requests: int) -> None:
    """Until so many requests have been counted as ended; then nothing may be held."""
    await sums.have_ended(requests)
    load = engine.load()
    assert (load.waiting, load.running, load.used_blocks) == (0, 0, 0), f"held: {load}"
    assert sums.outcomes.total() == requests, "a request ended twice"
