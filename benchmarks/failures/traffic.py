"""The steady load: calls of every kind at a bounded rate, each ending in exactly one outcome."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.failures.calls import Caller, Ending, Kind, callers

RATES: Mapping[Kind, float] = {Kind.TENSOR: 60.0, Kind.STREAM: 6.0, Kind.OPENAI: 6.0}  # a second
MOST = 64  # calls of a kind in flight; beyond it the next one waits
_PATIENCE = 120.0  # seconds for some hundred answers


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call, from its begin to its end."""

    kind: Kind
    number: int
    begin: float  # monotonic seconds
    end: float
    how: Ending

    @property
    def ok(self) -> bool:
        return self.how.status == "OK"


class Traffic:
    """Calls from a thread of its own, so that whoever breaks things may block."""

    def __init__(self, address: str, token: str, rates: Mapping[Kind, float] = RATES) -> None:
        """Assign only."""
        self._address = address
        self._token = token
        self._rates = rates
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")
        self._grown = threading.Condition()
        self._outcomes: list[Outcome] = []
        self.sent = 0  # calls begun

    @property
    def rate(self) -> float:
        """Calls a second, of all kinds."""
        return sum(self._rates.values())

    @property
    def outcomes(self) -> list[Outcome]:
        """All so far, in the order of their ends."""
        with self._grown:
            return list(self._outcomes)

    @contextmanager
    def flowing(self) -> Iterator[Traffic]:
        """Calls flow within; at the end each has ended."""
        self._thread.start()
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """No further calls; returns when each has ended. May be called again."""
        self._stopping.set()
        self._thread.join()

    def wait(self, holds: Callable[[list[Outcome]], bool], what: str) -> None:
        """Until something holds of the outcomes."""
        with self._grown:
            if not self._grown.wait_for(lambda: holds(self._outcomes), _PATIENCE):
                late = [(o.kind, o.how) for o in self._outcomes[-10:]]
                raise AssertionError(f"not within {_PATIENCE} s: {what}; the last ended so: {late}")

    def answered(self, count: int = 150) -> None:
        """Until so many more calls that begin from now on were answered, some of each kind."""
        now = time.monotonic()

        def enough(outcomes: list[Outcome]) -> bool:
            late = list(
                itertools.takewhile(lambda o: o.end >= now, reversed(outcomes))
            )  # ends only grow
            new = [o for o in late if o.ok and o.begin >= now]
            return len(new) >= count and {o.kind for o in new} == set(self._rates)

        self.wait(enough, f"{count} answers, of each kind some")

    async def _run(self) -> None:
        made = callers(self._address, self._token)
        try:
            async with asyncio.TaskGroup() as group:
                for kind, rate in self._rates.items():
                    group.create_task(self._keep(kind, made[kind], rate))
        finally:
            for caller in made.values():
                await caller.close()

    async def _keep(self, kind: Kind, caller: Caller, rate: float) -> None:
        slots = asyncio.Semaphore(MOST)
        begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
                await slots.acquire()
                if self._stopping.is_set():
                    return
                self.sent += 1
                task = group.create_task(self._one(kind, caller, number))
                task.add_done_callback(lambda _: slots.release())

    async def _one(self, kind: Kind, caller: Caller, number: int) -> None:
        begin = time.monotonic()
        how = await caller.call(number)
        with self._grown:
            self._outcomes.append(Outcome(kind, number, begin, time.monotonic(), how))
            self._grown.notify_all()
