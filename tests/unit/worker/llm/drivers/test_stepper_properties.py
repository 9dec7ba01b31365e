"""Whatever happens in whatever order: everything adds up, every request ends once, and no text is wrong."""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.rpc.errors import InvalidArgumentError, Kind
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import FinishReason
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, continued, ending
from tests.unit.worker.llm.stepping import Stepping, asked

SCRIPT = ending(23)
# Few different prompts, many of which begin alike.
prompts = st.builds(
    lambda stem, length, tail: (stem * 8)[:length] + tail,
    st.sampled_from([b"abcdefgh", b"abcdxyzw", b"qrst"]),
    st.integers(1, 24),
    st.binary(max_size=3),
).map(lambda prompt: bytes(prompt) or b"a")


class Requests(RuleBasedStateMachine):
    """Two tenants and nobody, three priorities, few blocks; the runner sometimes fails."""

    @initialize(
        blocks=st.integers(6, 24),
        step_tokens=st.integers(4, 40),
        running=st.integers(1, 6),
        share=st.sampled_from([0.5, 0.75, 1.0]),
        prefix_cache=st.booleans(),
    )
    def begin(
        self, blocks: int, step_tokens: int, running: int, share: float, prefix_cache: bool
    ) -> None:
        runner = ScriptedRunner(capacity(blocks, 4, max_blocks=12), SCRIPT)
        bounds = EngineSettings(
            max_step_tokens=step_tokens,
            max_running_requests=running,
            max_tenant_share=share,
            prefix_cache=prefix_cache,
        )
        self.engine = Stepping(runner, bounds)
        self.aborted: set[int] = set()

    @rule(
        prompt=prompts,
        tokens=st.one_of(st.none(), st.integers(1, 20)),
        tenant=st.sampled_from(["", "one", "two"]),
        priority=st.sampled_from([-1, 0, 0, 1]),
        n=st.sampled_from([1, 1, 1, 3]),
        seconds=st.one_of(st.none(), st.integers(0, 12)),
    )
    def submit(
        self,
        prompt: bytes,
        tokens: int | None,
        tenant: str,
        priority: int,
        n: int,
        seconds: int | None,
    ) -> None:
        now = self.engine.now
        deadline = None if seconds is None else now + seconds
        request = asked(
            prompt, tokens, n=n, tenant=tenant, priority=priority, arrived=now, deadline=deadline
        )
        with suppress(InvalidArgumentError):  # some could never fit
            self.engine.submit(request)

    @rule(data=st.data())
    @precondition(lambda self: self.engine.told)
    def abort(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.engine.told) - 1))
        self.aborted.add(number)
        self.engine.abort(number)

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.engine.now += 0.5
            self.engine.step()

    @rule(data=st.data())
    @precondition(lambda self: self.engine.told)
    def abort_within_a_step(self, data: st.DataObject) -> None:
        numbers = st.integers(0, len(self.engine.told) - 1)
        late = data.draw(st.lists(numbers, max_size=4))
        self.aborted.update(late)
        self.engine.step(aborted=late)

    @rule(later=st.integers(1, 12))
    @precondition(lambda self: len(self.engine.runner.fail_steps) < 2)
    def fail(self, later: int) -> None:
        self.engine.runner.fail_steps.add(self.engine.runner.steps + later)

    @invariant()
    def texts_are_right(self) -> None:
        """Also of those that are not finished, or ended with an error."""
        for told in self.engine.told:
            for index in range(told.request.sampling.n):
                tokens = told.tokens(index)
                assert tokens == continued(told.request.prompt, len(tokens), SCRIPT)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        engine.drain()
        assert engine.cache.pool.used == 0
        assert len(engine.ended) == len(engine.told), "each accepted request ends once"
        for number, told in enumerate(engine.told):
            assert told.last is not None
            error = told.last.error
            if error is None:
                self.ended_well(number)
            elif error.kind is Kind.CANCELLED:
                assert number in self.aborted
            elif error.kind is Kind.DEADLINE_EXCEEDED:
                assert told.request.deadline is not None
            else:
                assert error.kind is Kind.INTERNAL
                assert engine.runner.fail_steps

    def ended_well(self, number: int) -> None:
        """Its texts are whole."""
        told = self.engine.told[number]
        pieces = [piece for update in told.updates for piece in update.pieces]
        for index in range(told.request.sampling.n):
            reasons = [p.finish_reason for p in pieces if p.index == index and p.finish_reason]
            room = self.engine.door.room(told.request)
            wanted = told.request.sampling.max_tokens
            whole = continued(told.request.prompt, min(room, wanted or room), SCRIPT)
            assert told.tokens(index) == whole
            stopped = len(whole) < min(room, wanted or room)
            assert reasons == [FinishReason.STOP if stopped else FinishReason.LENGTH]


Requests.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_everything_adds_up_whatever_happens = Requests.TestCase
