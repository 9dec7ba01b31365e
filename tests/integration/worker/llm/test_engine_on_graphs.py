"""The engine on real graphs of a tiny model: texts are the same in any company, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.llm.engine_callers import Call, EngineSums, idle, running
from services.worker.llm.adapters.model_loader import FileModelLoader
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.generation import GenerationRequest
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.ports.language_model import LanguageModel
from tests.unit.worker.llm.adapters.graph_steps import library
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

TOKEN_BYTES = (
    2 * 2 * 2 * 16 * 2
)  # of a token in the native cache: layers, K and V, heads, size, half floats
SLOTS = EngineSettings(kv_cache_bytes=1024**2, max_running_requests=8, threads=1)
# For two or three of the requests at once.
FEW_BLOCKS = EngineSettings(kv_cache_bytes=10 * 16 * TOKEN_BYTES, max_running_requests=8, threads=1)
STEM = [7 + n * 13 % 90 for n in range(70)]
GREEDY = SamplingSettings(max_tokens=48, temperature=0.0, ignore_eos=True, logprobs=True)
BY_CHANCE = replace(GREEDY, temperature=0.9, top_p=0.95, seed=5)
# Of 3 to 71 tokens; they begin alike, and some are the same.
REQUESTS = [
    GenerationRequest(
        prompt=(*STEM[: 2 + 17 * (number % 5)], 20 + number % 4),
        sampling=BY_CHANCE if number % 3 == 0 else GREEDY,
        tenant=("one", "two")[number % 2],
    )
    for number in range(16)
]


def loaded(folder: Path, target: Target, settings: EngineSettings) -> Iterator[LanguageModel]:
    """A tiny model."""
    (folder / "files").mkdir()
    write_tiny(folder / "files" / "model.gguf", Tiny(precision="Q4_1"))
    model = FileModelLoader(folder / "graphs").load(
        folder / "files", "digest", replace(settings, target=target)
    )
    yield model
    model.runner.close()


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    library()
    yield from loaded(tmp_path_factory.mktemp("native"), Target.NATIVE, FEW_BLOCKS)


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    yield from loaded(tmp_path_factory.mktemp("portable"), Target.PORTABLE, SLOTS)


async def texts(
    model: LanguageModel, settings: EngineSettings, at_once: int
) -> tuple[list[tuple[list[int], list[float]]], EngineSums]:
    """Tokens and their logprobs, so many requests at a time."""
    room = asyncio.Semaphore(at_once)

    async def one(request: GenerationRequest) -> Call:
        async with room:
            return await Call(request).made(engine)

    async with running(model, settings) as (engine, sums):
        calls = await asyncio.gather(*map(one, REQUESTS))
        await idle(engine, sums, len(REQUESTS))
    assert all(call.is_whole and len(call.tokens) == 48 for call in calls)
    return [(call.tokens, call.logprobs) for call in calls], sums


async def test_texts_on_blocks_are_the_same_in_any_company(native: LanguageModel) -> None:
    """Alone without cache, in small and large pieces, sharing prefixes, preempted: the same logits, bit for bit."""
    alone, _ = await texts(native, replace(FEW_BLOCKS, prefix_cache=False), 1)
    for step_tokens in (16, 128):
        settings = replace(FEW_BLOCKS, max_step_tokens=step_tokens)
        together, sums = await texts(native, settings, 8)
        assert together == alone
        assert sums.prefix_hits
        assert sums.preemptions


async def test_texts_in_slots_are_the_same_in_any_company(portable: LanguageModel) -> None:
    """There is nothing to share and nobody to preempt."""
    alone, _ = await texts(portable, SLOTS, 1)
    together, sums = await texts(portable, replace(SLOTS, max_step_tokens=24), 8)
    assert together == alone
    assert (sums.prefix_hits, sums.preemptions) == (0, 0)
