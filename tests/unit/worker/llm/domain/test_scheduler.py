"""Who is computed when, in which blocks, and who gives way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from services.worker.llm.domain.continuation import Continuation, Phase
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.scheduler import Scheduler
from services.worker.llm.domain.step_plan import StepPlan
from services.worker.llm.drivers.engine_parts import scheduler_of
from tests.unit.worker.llm.scripted_runner import capacity
from tests.unit.worker.llm.stepping import asked


class Steps:
    """Plans steps and takes every token for computed; the token that follows is always 7."""

    def __init__(self, blocks: int = 16, **settings: Any) -> None:
        bounds = EngineSettings(**settings)
        self.scheduler: Scheduler = scheduler_of(capacity(blocks, 4, max_blocks=16), bounds)
        self.plan: StepPlan | None = None

    def add(self, prompt: Sequence[int] | bytes, **fields: Any) -> Continuation:
        (text,) = self.scheduler.add(asked(prompt, **fields))
        return text

    def step(self) -> list[tuple[Continuation, int]]:
        """Texts and how many tokens each got."""
        self.plan = self.scheduler.plan()
        self.scheduler.check()
        if self.plan is None:
            return []
        self.scheduler.computed(self.plan)
        for text in self.plan.sampled:
            if text.phase is Phase.RUNNING:
                self.scheduler.append(text, 7)
        self.scheduler.check()
        return list(self.plan.parts)

    def end(self, *texts: Continuation) -> None:
        for text in texts:
            self.scheduler.end(text)
        self.scheduler.check()


def phase(text: Continuation) -> Phase:
    return text.phase


def numbers(count: int, start: int = 1) -> list[int]:
    return list(range(start, start + count))


def test_a_step_lies_flat_before_the_runner() -> None:
    """Tokens one after the other, where each text begins, what it has, its blocks, and where a token is wanted."""
    steps = Steps(max_step_tokens=12)
    steps.add(numbers(6))
    steps.step()
    steps.add(numbers(20, 100))
    steps.step()
    assert steps.plan is not None
    step = steps.plan.input
    assert step.ids.tolist() == [7, *range(100, 111)]
    assert step.starts.tolist() == [0, 1, 12]
    assert step.past.tolist() == [6, 0]
    assert step.blocks.tolist() == [[0, 1, 0], [2, 3, 4]]
    assert step.rows.tolist() == [0]


def test_blocks_are_taken_as_they_are_needed() -> None:
    """A piece of a prompt takes blocks for that piece, and a text another block only for the token that needs it."""
    steps = Steps(max_step_tokens=8)
    text = steps.add(numbers(15))
    steps.step()
    assert text.table.blocks == [0, 1]
    steps.step()
    assert text.table.blocks == [0, 1, 2, 3]
    steps.step()
    assert (text.computed, text.table.blocks) == (16, [0, 1, 2, 3])
    steps.step()
    assert (text.computed, text.table.blocks) == (17, [0, 1, 2, 3, 4])


def test_running_texts_come_first_and_prompts_share_the_rest() -> None:
    """One token for each that has its prompt, then pieces of prompts in order of arrival, within one budget."""
    steps = Steps(max_step_tokens=8)
    first = steps.add(numbers(3))
    steps.step()
    second, third = steps.add(numbers(10, 50)), steps.add(numbers(4, 90))
    assert steps.step() == [(first, 1), (second, 7)]
    assert steps.step() == [(first, 1), (second, 3), (third, 4)]
    assert steps.step() == [(first, 1), (second, 1), (third, 1)]


def test_no_more_texts_run_than_allowed() -> None:
    """The third begins when one has ended."""
    steps = Steps(max_running_requests=2)
    first, second, third = (steps.add([n]) for n in (1, 2, 3))
    assert [text for text, _ in steps.step()] == [first, second]
    steps.end(first)
    assert [text for text, _ in steps.step()] == [second, third]


def test_the_same_beginning_is_found_and_the_last_token_is_computed_anew() -> None:
    """Full blocks only; of a prompt that is there wholly, its last block is computed again."""
    steps = Steps()
    first = steps.add(numbers(10))
    steps.step()
    again, longer = steps.add(numbers(8)), steps.add([*numbers(10), 50])
    assert steps.step() == [(first, 1), (again, 4), (longer, 3)]
    assert again.table.blocks[0] == longer.table.blocks[0] == first.table.blocks[0]
    assert longer.table.blocks[1] == first.table.blocks[1] != again.table.blocks[1]
    assert (again.found, longer.found) == (4, 8)
    assert steps.plan is not None
    assert (steps.plan.prefix_queries, steps.plan.prefix_hits) == (19, 12)


def test_answers_are_found_too() -> None:
    """What was generated is the beginning of a conversation's next prompt."""
    steps = Steps()
    first = steps.add(numbers(6))
    for _ in range(8):
        steps.step()
    steps.end(first)
    again = steps.add([*numbers(6), *[7] * 7, 9])
    assert steps.step() == [(again, 2)]
    assert again.found == 12


def test_a_text_waits_for_what_another_computes() -> None:
    """It begins when the last block that they share is there, and shares it; others pass it meanwhile."""
    steps = Steps(max_step_tokens=4)
    first = steps.add(numbers(13))
    assert steps.step() == [(first, 4)]
    alike = steps.add([*numbers(8), 99])
    assert steps.step() == [(first, 4)]
    assert phase(alike) == Phase.WAITING
    assert steps.step() == [(first, 4)]
    assert steps.step() == [(first, 1), (alike, 1)]
    assert alike.table.blocks[:2] == first.table.blocks[:2]


def test_nobody_waits_for_one_that_is_gone() -> None:
    """The one who waited computes what is missing."""
    steps = Steps(max_step_tokens=4)
    first, alike = steps.add(numbers(13)), steps.add([*numbers(12), 99])
    steps.step()
    assert phase(alike) == Phase.WAITING
    steps.end(first)
    assert steps.step() == [(alike, 4)]
    assert alike.found == 4


def test_nobody_waits_for_one_that_is_less_urgent() -> None:
    """It is computed twice rather than late."""
    steps = Steps(max_step_tokens=4)
    steps.add(numbers(13), priority=1)
    steps.step()
    urgent = steps.add([*numbers(12), 99])
    assert steps.step() == [(urgent, 4)]


def test_texts_of_one_request_share_its_prompt() -> None:
    """Also without a prefix cache, where it shares with no other request; what is not a full block is computed anew."""
    steps = Steps(blocks=32, prefix_cache=False)
    texts = steps.scheduler.add(asked(numbers(10), n=3))
    other = steps.add(numbers(10))
    assert steps.step() == [(texts[0], 10), (other, 10)]
    assert steps.step() == [(texts[0], 1), (other, 1), (texts[1], 2), (texts[2], 2)]
    shared = [text.table.blocks[:2] for text in texts]
    assert shared[0] == shared[1] == shared[2] != other.table.blocks[:2]
    assert len({text.table.blocks[2] for text in texts}) == 3
    steps.end(*texts, other)
    assert steps.scheduler.cache.pool.cached == 0


def test_tenants_find_nothing_of_each_other() -> None:
    """The same prompt is computed anew, and nobody waits for another tenant's."""
    steps = Steps(max_step_tokens=20)
    first, other = steps.add(numbers(10), tenant="one"), steps.add(numbers(10), tenant="two")
    assert steps.step() == [(first, 10), (other, 10)]
    later = steps.add(numbers(10), tenant="two")
    assert steps.step()[-1] == (later, 2)
    assert set(later.table.blocks[:2]) == set(other.table.blocks[:2])


def test_urgent_texts_go_before_pieces_of_others_prompts() -> None:
    """They begin at once, whatever prompt is being computed."""
    steps = Steps(blocks=32, max_step_tokens=8)
    long = steps.add(numbers(30), priority=1)
    steps.step()
    urgent, same = steps.add([90, 91, 92]), steps.add([93], priority=1)
    assert steps.step() == [(urgent, 3), (long, 5)]
    assert phase(same) == Phase.WAITING


def test_tenants_take_turns() -> None:
    """Whoever got fewer tokens goes first; a flood delays nobody else's first request."""
    steps = Steps(blocks=64, max_running_requests=1)
    flood = [steps.add([n, n, n, n], tenant="many") for n in range(1, 5)]
    steps.step()
    few = [steps.add([n, n], tenant="few") for n in range(11, 13)]
    order = []
    for _ in range(5):
        running = steps.plan.parts[0][0] if steps.plan else flood[0]
        steps.end(running)
        order += [text for text, _ in steps.step()]
    assert order[0] is few[0]
    assert order.index(few[1]) < order.index(flood[2])


def test_the_latest_gives_up_its_blocks_and_is_computed_again() -> None:
    """It keeps its tokens and its place, and begins again with what is left of its blocks."""
    steps = Steps(blocks=6)
    first, second = steps.add(numbers(8)), steps.add(numbers(7, 50))
    steps.step()
    assert (len(first.table.blocks), len(second.table.blocks)) == (2, 2)
    for _ in range(8):
        steps.step()
    assert steps.plan is not None
    assert phase(second) == Phase.WAITING
    assert (second.preemptions, second.computed, second.table.blocks) == (1, 0, [])
    told = list(second.tokens)
    steps.end(first)
    steps.step()
    assert phase(second) == Phase.RUNNING
    assert second.tokens[: len(told)] == told


def test_the_less_urgent_gives_way_but_never_the_one_that_runs_longest() -> None:
    """A text that is needy itself and can take from nobody waits with what it holds."""
    steps = Steps(blocks=9)
    oldest = steps.add(numbers(7), priority=1)
    steps.step()
    late, urgent = steps.add([99], priority=1), steps.add(numbers(7, 50))
    while not (oldest.preemptions or urgent.preemptions or late.preemptions):
        assert steps.step()
    assert (oldest.preemptions, urgent.preemptions, late.preemptions) == (0, 0, 1)
    while len(oldest.tokens) < 36:
        assert steps.step()
    assert (oldest.preemptions, urgent.preemptions) == (0, 1)
    assert len(oldest.table.blocks) == 9


def test_who_can_take_from_nobody_waits_with_what_it_holds() -> None:
    """It goes on when there are blocks again; nothing of it is computed twice."""
    steps = Steps(blocks=7)
    first, second = steps.add(numbers(11)), steps.add(numbers(8, 50))
    while steps.step()[-1][0] is second:
        pass
    assert (second.phase, len(second.table.blocks)) == (Phase.RUNNING, 3)
    computed = second.computed
    steps.end(first)
    assert steps.step() == [(second, 1)]
    assert (second.computed, second.preemptions) == (computed + 1, 0)


def test_a_tenant_at_its_quota_gives_way_to_itself_only() -> None:
    """Its own latest text is preempted, another tenant's is not; and its next text waits while others begin."""
    steps = Steps(blocks=16, max_tenant_share=0.4)
    mine = [steps.add(numbers(12, start), tenant="one") for start in (1, 50)]
    other = steps.add([90], tenant="two")
    steps.step()
    assert [text.phase for text in mine] == [Phase.RUNNING, Phase.WAITING]
    assert phase(other) == Phase.RUNNING
    short = steps.add([99], tenant="one")
    steps.step()
    assert phase(short) == Phase.WAITING, "in order of arrival within a tenant"
    steps.end(mine[1])
    steps.step()
    assert phase(short) == Phase.RUNNING
    last = steps.add([92], tenant="two")
    for _ in range(24):
        steps.step()
        if short.preemptions:
            break
    assert [text.preemptions for text in (mine[0], short, other, last)] == [0, 1, 0, 0]


@pytest.mark.parametrize("tenant", ["", "another"])
def test_what_is_promised_is_not_given_away(tenant: str) -> None:
    """A prompt that is computed in pieces finds blocks for all of it, though later ones would fit just now."""
    steps = Steps(blocks=8, max_step_tokens=9)
    long, late = steps.add(numbers(24)), steps.add(numbers(8, 90), tenant=tenant)
    for _ in range(4):
        steps.step()
    assert phase(late) == Phase.WAITING
    assert (long.preemptions, len(long.table.blocks)) == (0, 7)


def test_slots_hold_whole_texts_and_are_not_shared() -> None:
    """One block each, whatever the texts have in common; nothing is preempted."""
    scheduler = scheduler_of(capacity(2, 64, max_blocks=1, slots=True), EngineSettings())
    texts = [scheduler.add(asked(numbers(40)))[0] for _ in range(3)]
    plan = scheduler.plan()
    assert plan is not None
    assert plan.parts == ((texts[0], 40), (texts[1], 40))
    assert plan.input.blocks.tolist() == [[0], [1]]
    scheduler.computed(plan)
    scheduler.end(texts[0])
    scheduler.check()
    after = scheduler.plan()
    assert after is not None
    assert (texts[2], 40) in after.parts
    assert scheduler.cache.pool.cached == 0
