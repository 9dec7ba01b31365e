"""A text depends on its own request only: not on company, cache, pieces or preemption, and on no other tenant."""

import pytest

from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest
from services.worker.llm.domain.sampling_settings import SamplingSettings
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, continued
from tests.unit.worker.llm.stepping import Stepping, asked

STEM = bytes(range(97, 123)) * 3
# 24 prompts of 5 to 97 tokens, some of which begin alike, some of which are the same.
PROMPTS = [STEM[: 5 + 7 * (n % 14)] + bytes([65 + n % 9]) for n in range(24)]


def texts(
    concurrency: int, settings: EngineSettings, *, blocks: int = 512
) -> tuple[list[list[int]], Stepping]:
    """What the prompts are continued with, so many at a time."""
    runner = ScriptedRunner(capacity(blocks, 16, max_blocks=16))
    engine = Stepping(runner, settings)
    requests = [asked(prompt, 24) for prompt in PROMPTS]
    left = list(requests)
    while True:
        while left and sum(told.last is None for told in engine.told) < concurrency:
            engine.submit(left.pop(0))
        if not engine.step() and not left:
            return [told.tokens() for told in engine.told], engine


EXPECTED = [continued(prompt, 24) for prompt in PROMPTS]


@pytest.mark.parametrize("concurrency", [1, 8, 24])
@pytest.mark.parametrize("step_tokens", [16, 33, 128, 512])
@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no cache"])
def test_texts_are_the_same(concurrency: int, step_tokens: int, *, prefix_cache: bool) -> None:
    """Whatever is computed beside them and in whatever pieces."""
    settings = EngineSettings(max_step_tokens=step_tokens, prefix_cache=prefix_cache)
    found, engine = texts(concurrency, settings)
    assert found == EXPECTED
    hits = sum(facts.prefix_hits for facts in engine.facts)
    assert (hits > 300) == prefix_cache


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no cache"])
def test_texts_are_the_same_when_preempted(*, prefix_cache: bool) -> None:
    """With blocks for hardly more than one."""
    found, engine = texts(24, EngineSettings(prefix_cache=prefix_cache), blocks=20)
    assert found == EXPECTED
    assert sum(facts.preemptions for facts in engine.facts) > 0


def test_slots_say_the_same() -> None:
    """One block for a whole text."""
    runner = ScriptedRunner(capacity(6, 256, max_blocks=1, slots=True))
    engine = Stepping(runner)
    for prompt in PROMPTS:
        engine.submit(asked(prompt, 24))
    engine.drain()
    assert [told.tokens() for told in engine.told] == EXPECTED


def sampled(concurrency: int, *, blocks: int) -> list[list[int]]:
    """Texts by chance, two of each request, each request with a seed of its own."""
    engine = Stepping(ScriptedRunner(capacity(blocks, 16, max_blocks=16)))
    for seed, prompt in enumerate(PROMPTS[:12]):
        settings = SamplingSettings(max_tokens=60, temperature=0.7, top_k=20, seed=seed, n=2)
        engine.submit(GenerationRequest(prompt=tuple(prompt), sampling=settings))
        while sum(told.last is None for told in engine.told) >= concurrency:
            engine.step()
    engine.drain()
    assert (sum(facts.preemptions for facts in engine.facts) > 0) == (blocks < 50)
    return [told.tokens(index) for told in engine.told for index in range(2)]


def test_a_seed_says_the_same_in_any_company() -> None:
    """Also preempted; the two texts of a request, and equal prompts with other seeds, differ."""
    alone = sampled(1, blocks=512)
    assert sampled(12, blocks=512) == alone
    assert sampled(12, blocks=12) == alone
    assert len({tuple(tokens) for tokens in alone}) == 24


def steps_to_first_token(engine: Stepping, request: GenerationRequest) -> tuple[int, int]:
    """Steps and computed tokens until its first token is there."""
    steps, tokens = engine.runner.steps, engine.runner.tokens
    number = engine.submit(request)
    while not engine.told[number].updates:
        engine.step()
    return engine.runner.steps - steps, engine.runner.tokens - tokens


def test_another_tenants_prompts_make_nothing_faster() -> None:
    """The same prompt costs each tenant's first request all of it, and its second one a block."""
    engine = Stepping(ScriptedRunner(capacity(256, 16)), EngineSettings(max_step_tokens=16))
    prompt = STEM + STEM
    costs = []
    for tenant in ("one", "two", "", "one", "two", ""):
        costs.append(steps_to_first_token(engine, asked(prompt, 2, tenant=tenant)))
        engine.drain()
    assert costs == [(10, 156)] * 3 + [(1, 12)] * 3
    summaries = [told.last.summary for told in engine.told if told.last]
    assert [s.cached_prompt_tokens for s in summaries if s] == [0, 0, 0, 144, 144, 144]


def test_nobody_waits_for_another_tenants_prompt() -> None:
    """Both compute it at once."""
    engine = Stepping(ScriptedRunner(capacity(256, 16)), EngineSettings(max_step_tokens=64))
    for tenant in ("one", "two"):
        engine.submit(asked(STEM, 2, tenant=tenant))
    engine.step()
    engine.step()
    engine.step()
    assert [bool(told.updates) for told in engine.told] == [True, True]
    assert engine.runner.tokens >= 2 * len(STEM)
