"""Drives an engine: the scheduler decides, the runner computes, texts take what was chosen, the scheduler goes on.

Belongs to one thread. It never waits for anybody who reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.rpc.errors import (
    CancelledError,
    DeadlineExceededError,
    InferplaneError,
    InternalError,
)
from services.worker.domain.progress import Progress
from services.worker.domain.request_use import RequestUse
from services.worker.llm.domain.continuation import Continuation
from services.worker.llm.domain.deadlines import Deadlines
from services.worker.llm.domain.engine_facts import RequestFacts
from services.worker.llm.domain.generation import GenerationRequest, Piece, RequestId, Update
from services.worker.llm.domain.open_request import OpenRequest, OpenText
from services.worker.llm.domain.sampler import Chosen, choose
from services.worker.llm.domain.scheduler import Scheduler
from services.worker.llm.domain.step import Array
from services.worker.llm.domain.step_measures import StepMeasures
from services.worker.llm.domain.step_plan import StepPlan
from services.worker.llm.domain.text_state import Vocabulary, begin_texts
from services.worker.llm.drivers.step_report import StepReport
from services.worker.llm.ports.engine import EngineLoad
from services.worker.llm.ports.runner import Runner


@dataclass(frozen=True, slots=True)
class StepperParts:
    """What it drives."""

    scheduler: Scheduler
    runner: Runner
    vocabulary: Vocabulary
    progress: Progress
    clock: Callable[[], float]  # monotonic


class Stepper:
    """All accepted requests until they end; what is to be told of them is collected until `reported`."""

    def __init__(self, parts: StepperParts) -> None:
        """Nothing is open."""
        self._scheduler = parts.scheduler
        self._runner = parts.runner
        self._vocabulary = parts.vocabulary
        self._progress = parts.progress
        self._clock = parts.clock
        self._requests: dict[RequestId, OpenRequest] = {}
        self._texts: dict[Continuation, OpenText] = {}
        self._deadlines = Deadlines(self._requests)
        self._report = StepReport()

    def submit(self, number: RequestId, request: GenerationRequest, room: int) -> None:
        """Accept a request that was let in, with `room` for tokens in each of its texts."""
        states = begin_texts(request, self._vocabulary, room)
        opened = self._requests[number] = OpenRequest(number, request, writing=len(states))
        for continuation, state in zip(self._scheduler.add(request), states, strict=True):
            text = self._texts[continuation] = OpenText(opened, continuation, state)
            opened.texts.append(text)
        if request.deadline is not None:
            self._deadlines.add(request.deadline, number)

    def abort(self, number: RequestId) -> None:
        """The caller has gone; nothing happens if the request has ended."""
        opened = self._requests.get(number)
        if opened is not None:
            self._end(opened, CancelledError("the caller has gone"))

    def end_late(self) -> None:
        """End the requests whose deadline has passed."""
        for number in self._deadlines.passed(self._clock()):
            opened = self._requests[number]
            place = "in the queue" if opened.began is None else "before the end of the text"
            self._end(opened, DeadlineExceededError(f"the deadline passed {place}"))

    def end_all(self, error: InferplaneError) -> None:
        """Nothing is open any more."""
        for opened in list(self._requests.values()):
            self._end(opened, error)

    def step(self, take_in: Callable[[], None]) -> bool:
        """Compute once; whether there was something to compute. `take_in` brings what came meanwhile."""
        measures = StepMeasures(self._clock())
        plan = self._scheduler.plan()
        if plan is None:
            assert not self._requests, "requests are open, and nothing can be done for them"
            return False
        measures.planned = self._clock()
        self._mark_begun(plan, measures)
        measures.waiting, measures.running = self._scheduler.waiting, self._scheduler.running
        uses = self._uses(plan, measures)
        logits = self._computed(plan, measures)
        _charge(uses, measures.computed - measures.planned)
        take_in()
        if logits is not None:
            self._written(plan, logits, measures)
        self._report.step = measures.facts(plan, self._scheduler.slots, self._clock())
        return True

    def reported(self) -> StepReport | None:
        """What is to be told since it was asked last; None: nothing."""
        report = self._report
        if report.step is None and not report.updates:
            return None
        report.load = self.load()
        self._report = StepReport()
        return report

    def load(self) -> EngineLoad:
        """How busy it is."""
        scheduler, cache = self._scheduler, self._scheduler.cache
        places = cache.pool.used * cache.sizes.block_size
        return EngineLoad(
            waiting=scheduler.waiting,
            running=scheduler.running,
            blocks=cache.pool.total,
            used_blocks=cache.pool.used,
            cached_blocks=cache.pool.cached,
            kv_usage=cache.pool.used / cache.pool.total,
            waste=scheduler.unwritten / places if places else 0.0,
        )

    def check(self) -> None:
        """Raise AssertionError unless everything adds up."""
        self._scheduler.check()
        writing = [text for opened in self._requests.values() for text in opened.texts]
        assert {t.continuation for t in writing if t.state.finish_reason is None} == set(
            self._texts
        )
        assert len(self._texts) == self._scheduler.waiting + self._scheduler.running

    def _mark_begun(self, plan: StepPlan, measures: StepMeasures) -> None:
        for continuation, _ in plan.parts:
            opened = self._texts[continuation].request
            if opened.began is None:
                opened.began = measures.planned
                measures.queued.append(measures.planned - opened.request.arrived)
                self._report.began.append(opened.id)

    def _uses(self, plan: StepPlan, measures: StepMeasures) -> list[tuple[RequestUse, int]]:
        """Of requests that are counted: where to note what they take, and how many of the step's tokens are theirs."""
        found = []
        for continuation, count in plan.parts:
            opened = self._texts[continuation].request
            use = opened.request.use
            if use is not None:
                found.append((use, count))
                opened.note(use, measures.planned)
        return found

    def _computed(self, plan: StepPlan, measures: StepMeasures) -> Array | None:
        """Logits; None: the runner failed, and so did all whose tokens it should have computed."""
        run = self._progress.begin(measures.planned)
        try:
            return self._runner.step(plan.input)
        except InternalError as error:
            measures.failed = True
            for continuation, _ in plan.parts:
                text = self._texts.get(continuation)
                if text is not None:
                    self._end(text.request, error)
            return None
        finally:
            measures.computed = self._clock()
            self._progress.end(run, measures.computed)

    def _written(self, plan: StepPlan, logits: Array, measures: StepMeasures) -> None:
        """Choose the next tokens of all texts that are still wanted."""
        self._scheduler.computed(plan)
        texts = [text for c in plan.sampled if (text := self._texts.get(c)) is not None]
        if len(texts) < len(plan.sampled):
            logits = logits[[row for row, c in enumerate(plan.sampled) if c in self._texts]]
        began = self._clock()
        chosen = choose(logits, [text.state for text in texts])
        measures.sampling = self._clock() - began
        for text, token in zip(texts, chosen, strict=True):
            if text.continuation not in self._texts:
                continue  # another text of its request failed
            if token.error is not None:
                self._end(text.request, token.error)
            else:
                self._take(text, token, measures)

    def _take(self, text: OpenText, token: Chosen, measures: StepMeasures) -> None:
        now = measures.computed
        if text.first_token is None:
            text.first_token = now
            measures.first_tokens.append(now - text.request.request.arrived)
        else:
            measures.token_gaps.append(now - text.last_token)
        text.last_token = now
        measures.generated += 1
        piece = text.state.take(token)
        if piece.finish_reason is None:
            self._scheduler.append(text.continuation, token.token_id)
            self._report.updates.append((text.request.id, Update((piece,))))
        else:
            self._finish(text, piece)

    def _finish(self, text: OpenText, piece: Piece) -> None:
        """A text has ended well; with the last of them, its request."""
        opened = text.request
        self._scheduler.end(text.continuation)
        del self._texts[text.continuation]
        opened.writing -= 1
        if opened.writing:
            self._report.updates.append((opened.id, Update((piece,))))
            return
        del self._requests[opened.id]
        summary = opened.summary(self._clock())
        self._report.updates.append((opened.id, Update((piece,), summary)))
        self._report.ended.append(
            RequestFacts(
                tenant=opened.request.tenant,
                summary=summary,
                finish_reasons=opened.finish_reasons(),
            )
        )

    def _end(self, opened: OpenRequest, error: InferplaneError) -> None:
        """A request ends with an error; all that its texts hold is free at once."""
        for text in opened.texts:
            self._scheduler.end(text.continuation)
            self._texts.pop(text.continuation, None)
        del self._requests[opened.id]
        summary = opened.summary(self._clock())
        self._report.updates.append((opened.id, Update(summary=summary, error=error)))
        self._report.ended.append(
            RequestFacts(tenant=opened.request.tenant, summary=summary, error=error.kind)
        )


def _charge(uses: Sequence[tuple[RequestUse, int]], seconds: float) -> None:
    """Each gets its part of a step, by its tokens."""
    tokens = sum(count for _, count in uses)
    for use, count in uses:
        use.compute_ns += int(seconds * 1e9) * count // tokens
