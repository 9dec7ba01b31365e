"""Whether memory stays: random requests, callers who leave, prefixes that come and go, for half an hour.

Run as `python -m benchmarks.llm.soak --minutes 30`. The whole mesh is started, its memory looked at twice a minute. The
first third of the time is left out, in which caches fill; afterwards no look may be further from their mean than 2 %.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import platformdirs
import uvloop

from benchmarks.llm import inferplane
from benchmarks.llm.__main__ import tokenizer_text
from benchmarks.llm.call import Answer, Asked
from benchmarks.llm.connection import connect
from benchmarks.llm.contender import Catalog
from benchmarks.llm.prompts import Text
from benchmarks.llm.trial import first_token
from benchmarks.serving.contender import Running

_CALLERS = 12
_PREFIXES = 6  # at a time; one is forgotten with every call
_LEAVING = 0.25  # of the callers, within a second
_LONGEST_CALL = 60.0  # seconds
_LOOKS = 2  # a minute
_BOUND = 0.02


@dataclass(slots=True)
class Soak:
    """What is asked, and what was seen."""

    text: Text
    running: Running
    ends: float
    looks: list[float] = field(default_factory=list)  # MB, all processes
    calls: Counter[str] = field(default_factory=Counter)
    _draw: random.Random = field(default_factory=lambda: random.Random(6))
    _words: np.random.Generator = field(default_factory=lambda: np.random.default_rng(6))
    _prefixes: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Callers until the time is over; memory meanwhile."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(self._caller())
            group.create_task(self._look())

    async def _caller(self) -> None:
        while time.monotonic() < self.ends:
            answer = Answer(asked=self._question(), began=time.perf_counter())
            leaves = self._draw.random() < _LEAVING
            limit = self._draw.random() if leaves else _LONGEST_CALL
            connection = await connect(self.running.address)
            await connection.call(answer, "soak", limit)
            connection.close()
            self.calls["left" if leaves and answer.error else answer.fault() or "whole"] += 1

    def _question(self) -> Asked:
        while len(self._prefixes) < _PREFIXES:
            self._prefixes.append(self.text.cut(self._words, self._draw.randint(32, 400))[0])
        prefix = self._draw.choice(self._prefixes)
        if self._draw.random() < 1 / _PREFIXES:
            self._prefixes.remove(prefix)
        own, _ = self.text.cut(self._words, self._draw.randint(4, 64))
        tokens = self._draw.randint(1, 96)
        return Asked(prompt=f"{prefix}\n{own}", prompt_tokens=0, max_tokens=tokens)

    async def _look(self) -> None:
        while (left := self.ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 60 / _LOOKS))
            memory = await asyncio.to_thread(self.running.memory)
            self.looks.append(memory.rss)
            print(f"{memory.rss:.0f} MB; {dict(self.calls)}", flush=True)

    def spread(self) -> float:
        """The largest distance from the mean, after the first third."""
        late = self.looks[len(self.looks) // 3 :] or [1.0]
        mean = sum(late) / len(late)
        return max(abs(one - mean) for one in late) / mean


def main() -> int:
    """1 if memory did not stay or a call failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.llm.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="default: %(default)s")
    default = platformdirs.user_cache_path("inferplane") / "benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="default: %(default)s")
    order = parser.parse_args()
    catalog = Catalog(order.cache.expanduser().absolute())
    ours = next(inferplane.contenders(catalog.files.original, ablations=False))
    ours.before()
    with tempfile.TemporaryDirectory(prefix="ip-b-") as folder:
        running = ours.start(Path(folder))
        try:
            first_token(running)
            text = tokenizer_text(catalog.files.original())
            soak = Soak(text, running, time.monotonic() + 60 * order.minutes)
            uvloop.run(soak.run())
            dead = running.dead()
        finally:
            running.stop()
    failed = {what: count for what, count in soak.calls.items() if what not in {"left", "whole"}}
    spread = soak.spread()
    print(f"{sum(soak.calls.values())} calls; memory within {spread:.1%}; {failed or ''} {dead}")
    return int(bool(failed or dead) or spread > _BOUND)


if __name__ == "__main__":
    sys.exit(main())
