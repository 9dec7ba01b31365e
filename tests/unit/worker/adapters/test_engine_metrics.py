"""What is scraped of engines: names that gateways ask for, and values that follow the engine."""

import asyncio

from prometheus_client import CollectorRegistry

from services.rpc.errors import Kind
from services.rpc.names import VersionName
from services.worker.adapters.engine_metrics import MeteredEngines
from services.worker.llm.domain.engine_facts import RequestFacts, StepFacts
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.engine_statistics import EngineStatistics
from services.worker.llm.domain.generation import FinishReason, GenerationRequest, Summary
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.drivers.engine import Engine
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, scripted_model

VERSION = VersionName("m", "1")
LABELS = {"model_name": "m", "version": "1"}


async def write(engine: Engine) -> None:
    """One request of 5 tokens, to its end."""
    running = asyncio.create_task(engine.run())
    ended = asyncio.Event()
    sampling = SamplingSettings(max_tokens=5, temperature=0.0)
    request = GenerationRequest(prompt=tuple(b"hello"), sampling=sampling)
    engine.submit(request, lambda update: None if update.summary is None else ended.set())
    await asyncio.wait_for(ended.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_engine_is_measured_and_its_successor_goes_on() -> None:
    """Counters add up over engines of a version, gauges are there from the beginning, and all go with it."""
    registry = CollectorRegistry()
    engines = MeteredEngines(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, LABELS | labels)

    for round_ in (1, 2):
        model = scripted_model(ScriptedRunner(capacity()))
        engine = engines.engine(VERSION, model, EngineSettings())
        assert value("vllm:num_requests_waiting") == 0
        assert value("vllm:num_requests_running") == 0
        assert value("vllm:kv_cache_usage_perc") == 0
        await write(engine)
        assert value("vllm:generation_tokens_total") == 5 * round_
        assert value("vllm:request_success_total", finished_reason="length") == round_
        assert value("vllm:time_to_first_token_seconds_count") == round_
        assert value("vllm:inter_token_latency_seconds_count") == 4 * round_
        assert value("vllm:e2e_request_latency_seconds_count") == round_
        assert value("vllm:request_prompt_tokens_sum") == 5 * round_
        assert (value("inferplane_engine_runner_seconds_total") or 0) > 0
        sampling = value("inferplane_engine_sampling_seconds_total") or 0
        assert 0 < sampling < (value("inferplane_engine_own_seconds_total") or 0)
    assert value("vllm:cache_config_info", block_size="4", num_gpu_blocks="64") == 1
    engines.hide(VERSION)
    assert value("vllm:generation_tokens_total") is None


def test_idle_places_count_only_while_something_waits() -> None:
    """Times the length of the step."""
    of = EngineStatistics()
    step = {"requests": 2, "prompt_tokens": 3, "generated_tokens": 2, "own_seconds": 0.25}
    of.stepped(StepFacts(**step, seconds=0.75, running=2, slots=8))  # type: ignore[arg-type]
    assert of.idle_slot_seconds == 0
    of.stepped(StepFacts(**step, seconds=0.75, running=2, slots=8, waiting=1))  # type: ignore[arg-type]
    assert of.idle_slot_seconds == 6
    assert (of.steps, of.runner_seconds, of.own_seconds) == (2, 1.5, 0.5)


def test_ends_are_told_apart() -> None:
    """Texts by why they ended, requests by their error."""
    of = EngineStatistics()
    summary = Summary(prompt_tokens=1, completion_tokens=2, cached_prompt_tokens=0)
    reasons = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.STOP)
    of.ended(RequestFacts(tenant="", summary=summary, finish_reasons=reasons))
    of.ended(RequestFacts(tenant="", summary=summary, error=Kind.CANCELLED))
    assert of.finished == {"stop": 2, "length": 1}
    assert of.failed == {"cancelled": 1}
