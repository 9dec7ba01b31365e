"""Callers who go away, or whose deadline passes, around the time of an answer: nothing of them may stay in the engine.

Run as `python -m benchmarks.llm.cancels [--calls 100000]`. The engine is the worker's, with its thread; the runner is
a scripted one whose cache holds token ids, so a wrong or foreign block shows in the text. A third of the calls leave,
a third have deadlines, both at a random moment up to twice the median time of an answer. Whatever was told is compared
with what the text must be; then each call must have been counted once, no block be held, and the next answer be right.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from benchmarks.llm.engine_callers import Call, EngineSums, idle, running
from services.rpc.errors import Kind
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.generation import GenerationRequest
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.llm.drivers.engine import Engine
from tests.unit.worker.llm.scripted_runner import (
    ScriptedRunner,
    capacity,
    continued,
    ending,
    scripted_model,
)

CALLS = 100_000
_AT_ONCE = 48
_LATELY = 128  # calls that say how long an answer takes
_BLOCKS = 40  # of four tokens: too few for all, so that some are preempted
_STEMS = [bytes(range(97 + n, 117 + n)) for n in range(4)]
_SCRIPT = ending(31)
_EXPECTED: dict[tuple[int, ...], list[int]] = {}


def _requests(numbers: random.Random) -> Iterator[GenerationRequest]:
    while True:
        stem = numbers.choice(_STEMS)
        prompt = stem[: numbers.randrange(1, 20)] + bytes([65 + numbers.randrange(4)])
        settings = SamplingSettings(
            max_tokens=numbers.randrange(1, 24), temperature=0.0, n=numbers.choice((1, 1, 1, 2))
        )
        yield GenerationRequest(
            prompt=tuple(prompt),
            sampling=settings,
            tenant=numbers.choice(("", "one", "two")),
            priority=numbers.choice((0, 0, 0, 1)),
        )


def _is_right(call: Call) -> bool:
    """What was told is the beginning of what must be; all of it, if it ended well. Of one text only."""
    request, heard = call.request, call.tokens
    if call.told_late:
        return False
    if request.sampling.n > 1:
        return True
    whole = _EXPECTED.get(request.prompt)
    if whole is None:
        whole = _EXPECTED[request.prompt] = continued(request.prompt, 24, _SCRIPT)
    most = whole[: request.sampling.max_tokens]
    return heard == most if call.is_whole else heard == most[: len(heard)]


class _Callers:
    """Callers of one engine, and how long answers took lately."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._numbers = random.Random(seed)
        self._requests = _requests(self._numbers)
        self._lately: deque[float] = deque(maxlen=_LATELY)

    async def wait(self, calls: int) -> None:
        """So many calls that nobody ends early."""
        await self._at_once(self._whole, calls)

    async def leave(self, calls: int) -> None:
        """So many calls, two thirds of which may end at a random moment up to twice the median."""
        await self._at_once(self._any, calls)

    async def _at_once(self, make: Callable[[], Awaitable[Call]], calls: int) -> None:
        left = iter(range(calls))

        async def caller() -> None:
            for _ in left:
                call = await make()
                assert _is_right(call), f"a text is wrong: {call.request.prompt}"

        await asyncio.gather(*(caller() for _ in range(_AT_ONCE)))

    async def _whole(self) -> Call:
        call = await Call(next(self._requests)).made(self._engine)
        self._lately.append(call.seconds)
        return call

    async def _any(self) -> Call:
        fate = self._numbers.randrange(3)
        if not fate:
            return await self._whole()
        moment = self._numbers.uniform(0, 2 * statistics.median(self._lately))
        request = next(self._requests)
        if fate == 1:
            return await Call(request).made(self._engine, leave_after=moment)
        late = replace(request, deadline=time.monotonic() + moment)
        return await Call(late).made(self._engine)


async def cancels(calls: int, seed: int = 1) -> EngineSums:
    """Make so many calls; AssertionError if anything of them stays, is wrong, or is counted twice."""
    runner = ScriptedRunner(capacity(_BLOCKS, 4, max_blocks=12), _SCRIPT)
    settings = EngineSettings(max_step_tokens=64, max_running_requests=16, max_tenant_share=0.75)
    async with running(scripted_model(runner), settings) as (engine, sums):
        callers = _Callers(engine, seed)
        await callers.wait(_LATELY)
        await callers.leave(calls)
        await idle(engine, sums, _LATELY + calls)
        await callers.wait(1)
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    sums = asyncio.run(cancels(options.calls, options.seed))
    ended = {kind.value if kind else "whole": count for kind, count in sums.outcomes.items()}
    print(f"{options.calls} calls in {time.monotonic() - started:.0f} s: {ended}")
    print(f"{sums.steps} steps, {sums.preemptions} preemptions, {sums.prefix_hits} tokens found")
    assert sums.outcomes[Kind.CANCELLED], "nobody left in time"
    print("nothing is held, each call ended once, every text is right")


if __name__ == "__main__":
    main()
