"""An engine without its thread: a stepper on a scripted runner, with a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.worker.domain.progress import Progress
from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest, RequestId, Update
from services.worker.llm.domain.kv_cache import KvCache
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.domain.scheduler import Scheduler
from services.worker.llm.domain.text_state import Vocabulary
from services.worker.llm.drivers.engine_parts import door_of, scheduler_of
from services.worker.llm.drivers.stepper import Stepper, StepperParts
from tests.unit.worker.llm.scripted_runner import ByteTokenizer, ScriptedRunner, scripted_model


def asked(
    prompt: Sequence[int] | bytes, tokens: int | None = 8, *, n: int = 1, **fields: Any
) -> GenerationRequest:
    """A greedy request; `fields` are its other ones."""
    sampling = SamplingSettings(max_tokens=tokens, temperature=0.0, n=n)
    return GenerationRequest(prompt=tuple(prompt), sampling=sampling, **fields)


@dataclass(slots=True)
class Told:
    """What the caller of one request has heard."""

    request: GenerationRequest
    updates: list[Update] = field(default_factory=list)

    @property
    def last(self) -> Update | None:
        return self.updates[-1] if self.updates and self.updates[-1].summary else None

    def tokens(self, index: int = 0) -> list[int]:
        pieces = (piece for update in self.updates for piece in update.pieces)
        return [token for piece in pieces if piece.index == index for token in piece.token_ids]


class Stepping:
    """Submit, abort, step; everything that was told is kept, and everything adds up after each act."""

    def __init__(self, runner: ScriptedRunner, settings: EngineSettings | None = None) -> None:
        settings = settings or EngineSettings()
        tokenizer = ByteTokenizer()
        self.now = 0.0
        self.runner = runner
        self.scheduler: Scheduler = scheduler_of(runner.capacity, settings)
        self.stepper = Stepper(
            StepperParts(
                scheduler=self.scheduler,
                runner=runner,
                vocabulary=Vocabulary(256, tokenizer.token_bytes, tokenizer.end_ids),
                progress=Progress(),
                clock=lambda: self.now,
            )
        )
        self.door = door_of(scripted_model(runner), settings)
        self.told: list[Told] = []
        self.facts: list[StepFacts] = []
        self.ended: list[RequestFacts] = []

    @property
    def cache(self) -> KvCache:
        return self.scheduler.cache

    def submit(self, request: GenerationRequest) -> int:
        """Raises if it can't be let in."""
        room = self.door.room(request)
        number = len(self.told)
        self.told.append(Told(request))
        self.stepper.submit(RequestId(number), request, room)
        self._collect()
        return number

    def abort(self, number: int) -> None:
        self.stepper.abort(RequestId(number))
        self._collect()

    def step(self, *, aborted: Sequence[int] = ()) -> bool:
        """One turn; these requests are aborted while the runner computes."""

        def take_in() -> None:
            for number in aborted:
                self.stepper.abort(RequestId(number))

        self.stepper.end_late()
        busy = self.stepper.step(take_in)
        self._collect()
        return busy

    def drain(self, most: int = 5000) -> int:
        """Step until nothing is left; how many steps that took."""
        for steps in range(most):
            if not self.step():
                return steps
        raise AssertionError(f"not done after {most} steps")

    def _collect(self) -> None:
        self.stepper.check()
        report = self.stepper.reported()
        if report is None:
            return
        for number, update in report.updates:
            told = self.told[number]
            assert told.last is None, "told after its end"
            told.updates.append(update)
        if report.step is not None:
            self.facts.append(report.step)
        self.ended += report.ended
