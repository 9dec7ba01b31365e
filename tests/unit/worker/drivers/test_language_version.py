"""A language model from assignment to unload, with a real engine on a scripted runner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from services.rpc.errors import FailedPreconditionError, UnavailableError
from services.rpc.names import VersionName
from services.worker.domain.assignment import Assignment, VersionSpec
from services.worker.domain.load_state import LoadError, LoadState
from services.worker.domain.routing import Asked
from services.worker.domain.signature import Signature
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.roster import Roster
from services.worker.drivers.runner_parts import RunnerDefaults, RunnerParts
from services.worker.drivers.traffic import Traffic
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.drivers.engine import Engine
from services.worker.llm.ports.language_model import LanguageModel
from services.worker.ports.languages import Languages, RunningEngine
from tests.unit.worker.llm.drivers.engine_run import Caller, Meter
from tests.unit.worker.llm.scripted_runner import (
    ScriptedRunner,
    capacity,
    continued,
    scripted_model,
    text_of,
)

SPEC = VersionSpec(
    name=VersionName("smol", "1"),
    digest="d" * 64,
    files=(),
    signature=Signature((), ()),
    is_language=True,
)
ASSIGNED = {SPEC.name: Assignment(SPEC, "1")}
GONE = (LoadState.GONE, None)
PROMPT = tuple(b"once upon a time")
_STALL = 1.0  # seconds that a step may take: more than a busy machine keeps a thread waiting


@dataclass(slots=True)
class Here:
    """All that a version asks of its worker: files, models, engines, health, meters."""

    runners: list[ScriptedRunner] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    broken: str = ""
    serving: dict[str, bool] = field(default_factory=dict)
    shown: set[VersionName] = field(default_factory=set)
    hidden: list[VersionName] = field(default_factory=list)
    held: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.hold.set()

    @asynccontextmanager
    async def _folder(self, spec: VersionSpec) -> AsyncIterator[Path]:
        self.held += 1
        try:
            yield Path("/nowhere")
        finally:
            self.held -= 1

    def load(self, folder: Path, digest: str, settings: EngineSettings) -> LanguageModel:
        if self.broken:
            raise LoadError(self.broken)
        self.runners.append(ScriptedRunner(capacity(), hold=self.hold))
        return scripted_model(self.runners[-1])

    def engine(
        self, version: VersionName, model: LanguageModel, settings: EngineSettings
    ) -> RunningEngine:
        return Engine(model, settings, Meter())

    async def set_health(self, service: str, *, serving: bool) -> None:
        self.serving[service] = serving

    def show(self, name: VersionName, statistics: VersionStatistics) -> None:
        self.shown.add(name)

    def hide(self, name: VersionName) -> None:
        self.shown.discard(name)
        self.hidden.append(name)

    async def announced(self) -> None:
        return

    async def until(self, holds: Callable[[], bool]) -> None:
        """Until something holds; looked at after each change of a state."""
        async with asyncio.timeout(20):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def parts(self) -> RunnerParts:
        nothing = cast(Any, None)  # tensor models' alone

        @dataclass
        class Cache:
            hold: Any

        return RunnerParts(
            cache=Cache(self._folder),
            probe=nothing,
            tunings=nothing,
            loader=nothing,
            flights=nothing,
            reruns=nothing,
            meter=self,
            health=self,
            traffic=Traffic(),
            loads=asyncio.Semaphore(1),
            changed=self.changed.set,
            announced=self.announced,
            delivered=lambda: None,
            defaults=RunnerDefaults(
                max_batch_size=1,
                max_queued_rows=1,
                max_queued_bytes=1,
                concurrent_runs=1,
                drain_seconds=10,
                stall_seconds=_STALL,
                quiet_seconds=0.01,
                longest_backoff=0.01,
                look_seconds=0.01,
            ),
            languages=Languages(self, self, EngineSettings(threads=1)),
        )


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    made = Here()
    yield made
    made.hold.set()


@pytest.fixture
async def roster(here: Here) -> AsyncIterator[Roster]:
    roster = Roster(here.parts())
    task = asyncio.create_task(roster.run())
    yield roster
    here.hold.set()
    roster.assign({})
    await here.until(lambda: state_of(roster) in GONE)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def state_of(roster: Roster) -> LoadState | None:
    reports = roster.reports()
    return reports[0].state if reports else None


async def ready(here: Here, roster: Roster) -> Engine:
    roster.assign(ASSIGNED)
    await here.until(lambda: state_of(roster) is LoadState.READY)
    return cast(Engine, roster.find_text(Asked("smol", "")).engine)


def asked(tokens: int = 8) -> GenerationRequest:
    return GenerationRequest(
        prompt=PROMPT, sampling=SamplingSettings(max_tokens=tokens, temperature=0)
    )


async def test_a_language_model_serves_until_it_is_unassigned(here: Here, roster: Roster) -> None:
    """It becomes READY, writes, is found by calls for text alone, and at the end gives everything back."""
    engine = await ready(here, roster)
    assert here.serving[str(SPEC.name)]
    caller = Caller(engine).submit(asked())
    await caller.ended()
    assert caller.text() == text_of(continued(PROMPT, 8))
    with pytest.raises(FailedPreconditionError, match="language model"):
        roster.find(Asked("smol", ""))
    execution = roster.reports()[0].execution
    assert execution is not None
    assert execution.max_batch_size == EngineSettings().max_running_requests
    roster.assign({})
    await here.until(lambda: state_of(roster) in GONE)
    assert here.held == 0
    assert here.runners[0].closed
    assert not here.serving[str(SPEC.name)]
    assert here.shown == set()
    with pytest.raises(UnavailableError):
        engine.submit(asked(), lambda _: None)


async def test_a_step_that_never_ends_turns_readiness_off(here: Here, roster: Roster) -> None:
    """While the engine's thread hangs the version is FAILED, and READY again when it goes on; nothing is lost."""
    engine = await ready(here, roster)
    here.hold.clear()
    caller = Caller(engine).submit(asked())
    await here.until(lambda: state_of(roster) is LoadState.FAILED)
    assert "no progress" in roster.reports()[0].reason
    assert not here.serving[str(SPEC.name)]
    here.hold.set()
    await here.until(lambda: state_of(roster) is LoadState.READY)
    assert (await caller.ended()).error is None
    assert caller.text() == text_of(continued(PROMPT, 8))


async def test_an_idle_engine_stays_ready(here: Here, roster: Roster) -> None:
    """Many looks without any work find nothing wrong."""
    await ready(here, roster)
    here.changed.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * _STALL):
            await here.changed.wait()
    assert state_of(roster) is LoadState.READY


async def test_a_model_that_cannot_be_loaded_says_why(here: Here, roster: Roster) -> None:
    """The reason is the version's; once the cause is gone it loads."""
    here.broken = "architecture: 'mamba'; allowed: llama"
    roster.assign(ASSIGNED)
    await here.until(lambda: state_of(roster) is LoadState.FAILED)
    assert roster.reports()[0].reason == here.broken
    assert here.held == 0
    here.broken = ""
    await here.until(lambda: state_of(roster) is LoadState.READY)


async def test_a_worker_without_language_models_refuses_them(here: Here) -> None:
    """It says so instead of taking the version for one of tensors."""
    roster = Roster(replace(here.parts(), languages=None))
    task = asyncio.create_task(roster.run())
    roster.assign(ASSIGNED)
    await here.until(lambda: state_of(roster) is LoadState.FAILED)
    assert "not served by this worker" in roster.reports()[0].reason
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
