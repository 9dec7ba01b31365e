"""Two tenants on a real model, each with words of its own in its prompts: nothing of one may show in the other.

Run as `python -m benchmarks.llm.canaries [--requests 10000]`. Each prompt is first continued alone on an engine without
prefix cache; then all are asked again and again, in random order, many at once, with a cache that is too small for
them, so that texts are preempted and blocks change hands; some callers leave. A text that differs from the one alone
by a single token, or has another tenant's word in it, ends it with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from benchmarks.llm.engine_callers import CACHE, Call, EngineSums, idle, running
from benchmarks.llm.model_files import ModelFiles
from services.rpc.errors import Kind
from services.worker.llm.adapters.model_loader import FileModelLoader
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.drivers.engine import Engine
from services.worker.llm.ports.language_model import LanguageModel
from services.worker.llm.ports.tokenizer import Tokenizer

REQUESTS = 10_000
_AT_ONCE = 32
_TENANTS = ("red", "blue")
_PROMPTS = 40  # of each tenant
_TOKENS = 24
_BLOCKS_BYTES = 24 * 1024**2  # about 65: far too few for all that run at once
_MEMORY_BYTES = 256 * 1024**2
_LEAVES = 0.1  # of the callers


def open_model(kv_cache_bytes: int = _MEMORY_BYTES) -> LanguageModel:
    """SmolLM2, as a worker loads it."""
    file = ModelFiles(CACHE / "llm").original()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.gguf").symlink_to(file)
        settings = EngineSettings(kv_cache_bytes=kv_cache_bytes, context_length=2048)
        return FileModelLoader(CACHE / "llm" / "graphs").load(
            Path(folder), f"{file.name} {file.stat().st_size}", settings
        )


def word(tenant: str, number: int) -> str:
    """That no other prompt has."""
    letters = random.Random(f"{tenant} {number}").choices("bcdfghjklmnpqrstvwxz", k=8)
    return "".join(letters)


def prompts(tokenizer: Tokenizer) -> list[GenerationRequest]:
    """Some begin alike, also between tenants, and end with what only they know."""
    made = []
    for tenant in _TENANTS:
        for number in range(_PROMPTS):
            story = f"Story {number % 5}. " + "The quick brown fox jumps over the lazy dog. " * (
                number % 7
            )
            text = f"{story}The secret word is {word(tenant, number)}. Again, the secret word is"
            made.append(
                GenerationRequest(
                    prompt=tuple(tokenizer.encode(text, special=True)),
                    sampling=SamplingSettings(max_tokens=_TOKENS, temperature=0.0, ignore_eos=True),
                    tenant=tenant,
                )
            )
    return made


async def _alone(model: LanguageModel, asked: list[GenerationRequest]) -> list[list[int]]:
    async with running(model, EngineSettings(prefix_cache=False)) as (engine, _):
        return [(await Call(request).made(engine)).tokens for request in asked]


async def _together(
    model: LanguageModel, asked: list[GenerationRequest], expected: list[list[int]], requests: int
) -> EngineSums:
    numbers, left = random.Random(1), iter(range(requests))
    settings = EngineSettings(max_running_requests=24)

    async def caller(engine: Engine) -> None:
        for _ in left:
            which = numbers.randrange(len(asked))
            leaves = numbers.uniform(0, 0.5) if numbers.random() < _LEAVES else None
            call = await Call(asked[which]).made(engine, leave_after=leaves)
            whole = expected[which]
            told = whole if call.is_whole else whole[: len(call.tokens)]
            assert call.tokens == told, f"prompt {which} was answered wrongly"
            assert not call.told_late, "told after the end"

    async with running(model, settings) as (engine, sums):
        await asyncio.gather(*(caller(engine) for _ in range(_AT_ONCE)))
        await idle(engine, sums, requests)
    return sums


def foreign_words(asked: list[GenerationRequest], texts: list[str]) -> list[str]:
    """Words of one tenant that are in a text of the other."""
    return [
        word(tenant, number)
        for request, text in zip(asked, texts, strict=True)
        for tenant in _TENANTS
        if tenant != request.tenant
        for number in range(_PROMPTS)
        if word(tenant, number) in text
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    model = open_model(_BLOCKS_BYTES)
    asked = prompts(model.tokenizer)
    expected = asyncio.run(_alone(model, asked))
    texts = [b"".join(map(model.tokenizer.token_bytes, tokens)).decode() for tokens in expected]
    repeated = sum(
        word(request.tenant, number % _PROMPTS)[:4] in text
        for number, (request, text) in enumerate(zip(asked, texts, strict=True))
    )
    assert not foreign_words(asked, texts)
    print(f"{len(asked)} prompts alone; {repeated} answers repeat their own word")
    started = time.monotonic()
    sums = asyncio.run(_together(model, asked, expected, options.requests))
    model.runner.close()
    print(
        f"{options.requests} requests in {time.monotonic() - started:.0f} s: {sums.outcomes[None]} whole,"
        f" {sums.outcomes[Kind.CANCELLED]} left, {sums.preemptions} preemptions,"
        f" {sums.prefix_hits} of {sums.prefix_queries} prompt tokens found; every text as alone"
    )


if __name__ == "__main__":
    main()
