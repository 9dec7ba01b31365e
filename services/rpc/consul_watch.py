"""Follows the workers in Consul by blocking queries, and notices within a beat that an agent has stopped answering."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
import tenacity
from inferplane.discovery.v1 import worker_pb2

from services.rpc.clock import Clock
from services.rpc.consul import SERVICE, Answer, Consul, ConsulError, ConsulRefusedError
from services.rpc.consul_index import next_index
from services.rpc.consul_roster import ConsulRoster
from services.rpc.consul_worker import DEFAULT_LEASE, read_entries

_log = structlog.get_logger(__name__)

_PATH = f"health/service/{SERVICE}"
_OLDEST = 600.0  # seconds without a leader, for a server's list to begin with
_BUSY_SECONDS = 0.1  # between two questions, whatever is answered
_LARGE_BYTES = 256 * 1024  # of an answer; larger ones are asked for more rarely
_LONGEST_PAUSE = 2.0  # seconds


class Hearer(Protocol):
    """Hears who is alive. Called from the event loop; never blocks."""

    def hear(self, workers: Sequence[worker_pb2.Worker]) -> None:
        """Take the complete list of live workers."""

    def lose(self) -> None:
        """Consul is away; who was heard of last stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds of a watch."""

    wait: float = 60.0  # of a blocking query without news
    beat: float = DEFAULT_LEASE / 4  # between two looks at whether the agent answers

    @classmethod
    def of_lease(cls, seconds: float) -> "Pace":
        """Looks often enough to miss an agent before checks of workers with such leases fail in it."""
        return cls(beat=seconds / 4)

    @property
    def patience(self) -> float:
        """For a blocking query: an agent adds up to a sixteenth of what it was asked to wait."""
        return self.wait * (1 + 1 / 16) * 1.1 + 5


class _Progress:
    def __init__(self) -> None:
        self.heard = False


class ConsulWatch:
    """One question at a time; the hearer is told whenever who is alive has changed."""

    def __init__(
        self, consul: Consul, hearer: Hearer, roster: ConsulRoster, clock: Clock, pace: Pace
    ) -> None:
        self._consul = consul
        self._hearer = hearer
        self._clock = clock
        self._pace = pace
        self._roster = roster
        self._changed = asyncio.Event()
        self._is_lost = True
        self._told: tuple[worker_pb2.Worker, ...] | None = None
        self.questions = 0  # asked, without looks at whether the agent answers

    async def run(self) -> None:
        """Follow for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                tasks.create_task(self._tell_what_ends())
        finally:
            await self._consul.close()

    async def _read(self) -> None:
        while True:
            progress = _Progress()
            async for attempt in _again():
                with attempt:
                    try:
                        await self._follow(progress)
                    except ConsulError as error:
                        self._lose(error)
                        if not self._roster.was_heard:
                            await self._begin_without_leader()
                        self._consul.move_on()
                        if not progress.heard:
                            raise

    async def _follow(self, progress: _Progress) -> None:
        """Ask again and again, until there is no good answer. Raises ConsulError."""
        index, dull = 0, 0
        while True:
            began = self._clock.monotonic()
            answer = await self._ask(index)
            is_news = index == 0 or answer.index != index
            if is_news or self._is_lost:
                await self._hear(answer)
            progress.heard = True
            was_quick = self._clock.monotonic() - began < _LONGEST_PAUSE
            index = next_index(index, answer.index)
            dull = dull + 1 if was_quick and (index == 0 or not is_news) else 0
            # Agents that answer at once without news must not be asked at once again; news may come together.
            busy = _BUSY_SECONDS * max(1.0, len(answer.body) / _LARGE_BYTES)
            pause = min(busy * 2**dull, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
            await asyncio.sleep(max(0.0, pause - (self._clock.monotonic() - began)))

    async def _ask(self, index: int) -> Answer:
        """The blocking query, given up as soon as the agent does not answer other questions. Raises ConsulError."""
        wait = round(self._pace.wait * random.uniform(0.9, 1.1) * 1000)  # not all of them at once
        waiting = {"index": str(index), "wait": f"{wait}ms"} if index else {}
        self.questions += 1
        question = asyncio.create_task(
            self._consul.get(_PATH, waiting, seconds=self._pace.patience)
        )
        try:
            while True:
                await asyncio.wait({question}, timeout=self._pace.beat)
                if question.done():
                    return question.result()
                await self._look()
        finally:
            if not question.done():
                question.cancel()
                await asyncio.gather(question, return_exceptions=True)

    async def _look(self) -> None:
        """Whether the agent answers, and has a leader. Raises ConsulError."""
        answer = await self._consul.get("status/leader", seconds=self._pace.beat)
        if not answer.json():
            raise ConsulRefusedError(500, "there is no leader")

    async def _hear(self, answer: Answer) -> None:
        entries = read_entries(answer.json())
        if not entries:
            await self._check_may_read(answer)
        if self._is_lost:
            _log.info("Consul answers", agent=self._consul.url, services=len(entries))
        was_lost, self._is_lost = self._is_lost, False
        self._roster.hear(entries, self._clock.monotonic())
        self._tell(again=was_lost)
        self._changed.set()

    async def _check_may_read(self, answer: Answer) -> None:
        """To who may not read, Consul's list is empty, without a word. Raises ConsulRefusedError."""
        if answer.is_filtered or await self._is_forbidden():
            raise ConsulRefusedError(403, f"the token may not read service {SERVICE} and its nodes")

    async def _is_forbidden(self) -> bool:
        wanted = {"Resource": "service", "Access": "read", "Segment": SERVICE}
        try:
            answer = await self._consul.call(
                "POST", "internal/acl/authorize", {}, [wanted], seconds=self._pace.beat
            )
        except ConsulRefusedError:
            return False  # there are no ACLs, or this agent can't say
        said = answer.json()
        return isinstance(said, list) and any(
            isinstance(one, dict) and one.get("Allow") is False for one in said
        )

    async def _begin_without_leader(self) -> None:
        """Begin with what some server knows: an old list is better than none; a known one stays instead."""
        try:
            answer = await self._consul.get(_PATH, {"stale": ""}, seconds=self._pace.beat)
            entries = read_entries(answer.json())
        except ConsulError:
            return
        if not entries or answer.age > _OLDEST:
            return
        _log.warning("began with a list that has no leader", age=answer.age, services=len(entries))
        now = self._clock.monotonic()
        self._roster.hear(entries, now)
        self._tell(again=True)
        self._roster.lose(now)
        self._hearer.lose()

    def _lose(self, error: ConsulError) -> None:
        if not self._is_lost:
            _log.warning(
                "Consul is away, workers stay as last known",
                agent=self._consul.url,
                error=str(error),
            )
            self._is_lost = True
            self._roster.lose(self._clock.monotonic())
            self._hearer.lose()

    async def _tell_what_ends(self) -> None:
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            if not self._is_lost:
                self._tell(again=False)
            await self._clock.wait(self._changed, self._roster.next_change(now))

    def _tell(self, *, again: bool) -> None:
        alive = self._roster.live(self._clock.monotonic())
        if again or alive != self._told:
            self._told = alive
            self._hearer.hear(alive)


def _again() -> tenacity.AsyncRetrying:
    def note(state: tenacity.RetryCallState) -> None:
        if state.attempt_number.bit_count() > 1:
            return  # said ever more rarely: it may last for hours
        outcome = state.outcome
        error = outcome.exception() if outcome is not None else None
        _log.warning("Consul is away", error=str(error), attempt=state.attempt_number)

    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(ConsulError),
        wait=tenacity.wait_fixed(_BUSY_SECONDS)
        + tenacity.wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
        before_sleep=note,
        reraise=True,
    )
