"""Decides what each step computes, and whose blocks give way when they run out.

One rule: a step gives tokens to texts under one budget. Running texts that lack one token come first, then running
ones that lack more, then those that wait. A text takes blocks as it needs them. If there are none, the least urgent,
latest text gives up all of its own and is computed again later; the longest running text never does, and takes from
everyone, so something always ends. What was promised to texts that run is not given to those that begin.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from operator import attrgetter

from services.worker.llm.domain.continuation import Continuation, Phase
from services.worker.llm.domain.generation import GenerationRequest, TokenId
from services.worker.llm.domain.kv_cache import KvCache, Prefix
from services.worker.llm.domain.step_plan import Draft, StepPlan
from services.worker.llm.domain.waiting_line import WaitingLine

# Texts that wait for what others compute are passed, but of thousands that wait for the same not all are asked.
_LOOKED_AT = 128

_rank = attrgetter("rank")
_number = attrgetter("number")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Bounds of one step. Each running text can always get the token it lacks."""

    step_tokens: int
    running: int  # texts; at most `step_tokens`
    # Between a tenant's requests; the texts of one request share theirs anyway.
    shares_prefixes: bool = True


class Shortage(Enum):
    """Why a text can't begin."""

    NONE = auto()
    TENANT = auto()  # its tenant holds as much as one may
    BLOCKS = auto()


class Scheduler:
    """Knows budgets and turns; not what a token means, nor what time it is."""

    def __init__(self, cache: KvCache, limits: SchedulerLimits) -> None:
        """Nothing waits or runs."""
        self.cache = cache
        self._limits = limits
        self._waiting = WaitingLine()
        self._running: list[Continuation] = []  # by rank
        self._numbers = count()

    @property
    def waiting(self) -> int:
        """Texts that wait, for the first time or again."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Texts that hold blocks."""
        return len(self._running)

    @property
    def slots(self) -> int:
        """Texts that may run at once."""
        return self._limits.running

    @property
    def unwritten(self) -> int:
        """Places in blocks in use that hold no token. What is shared is full."""
        return sum(text.table.places - text.computed for text in self._running)

    def add(self, request: GenerationRequest) -> list[Continuation]:
        """Its texts wait from now on. It was checked that each of them fits alone."""
        salt = self._salt(request)
        texts = [self._continuation(request, index, salt) for index in range(request.sampling.n)]
        for text in texts:
            self._waiting.join(text)
        return texts

    def plan(self) -> StepPlan | None:
        """What to compute now; None: nothing waits or runs."""
        draft = Draft(self._limits.step_tokens)
        for text in tuple(self._running):
            if text.lacks == 1 and text.phase is Phase.RUNNING:
                self._extend(text, draft)
        for text in tuple(self._running):
            if text.lacks > 1 and text.phase is Phase.RUNNING and draft.left:
                if self._waiting:
                    self._admit(draft, before=text.priority)
                self._extend(text, draft)
        if self._waiting:
            self._admit(draft)
        return draft.finished()

    def computed(self, plan: StepPlan) -> None:
        """The step was computed: its keys and values are there, for others too."""
        for text, tokens in plan.parts:
            if text.phase is Phase.RUNNING:
                text.computed += tokens
                table = text.table
                if table.root is not None and text.computed >= table.next_name:
                    self.cache.wrote(table, text.tokens, text.computed)

    def append(self, text: Continuation, token: TokenId) -> None:
        """A running text, of which nothing is lacking, goes on with this token."""
        assert isinstance(text.tokens, list)
        text.tokens.append(token)

    def end(self, text: Continuation) -> None:
        """It is over, for whatever reason: what it holds is free at once. Nothing happens if it was over."""
        if text.phase is Phase.ENDED:
            return
        if text.phase is Phase.RUNNING:
            self._stop(text)
        else:
            self._waiting.take(text)
        text.move(Phase.ENDED)
        self._waiting.leave(text)

    def check(self) -> None:
        """Raise AssertionError unless everything adds up."""
        waiting = list(self._waiting)
        assert all(text.phase is Phase.WAITING and not text.table.blocks for text in waiting)
        assert all(text.phase is Phase.RUNNING for text in self._running)
        assert self._running == sorted(self._running, key=_rank), "running texts are in order"
        assert len(self._running) <= self._limits.running, "too many run"
        assert all(text.computed <= text.table.places for text in self._running), "unheld tokens"
        self._waiting.check()
        self.cache.check([text.table for text in self._running])

    def _continuation(
        self, request: GenerationRequest, index: int, salt: str | None
    ) -> Continuation:
        return Continuation(
            number=next(self._numbers),
            index=index,
            priority=request.priority,
            tokens=request.prompt,
            prompt_tokens=len(request.prompt),
            table=self.cache.table(request.tenant, request.priority, salt),
            share=self._waiting.share(request.tenant, request.priority),
        )

    def _salt(self, request: GenerationRequest) -> str | None:
        """With whom the request shares what is the same: all of its tenant's, or its own texts only."""
        if self._limits.shares_prefixes:
            return f"tenant {request.tenant}"
        return f"request {next(self._numbers)}" if request.sampling.n > 1 else None

    def _extend(self, text: Continuation, draft: Draft) -> None:
        """Give a running text what the budget and the cache have for it."""
        tokens = min(text.lacks, draft.left)
        if text.computed + tokens > text.table.places:
            tokens = self._fitting(text, tokens, draft)
            self.cache.grow(text.table, text.computed + tokens)
        if tokens:
            draft.add(text, tokens)

    def _fitting(self, text: Continuation, tokens: int, draft: Draft) -> int:
        """How many tokens it has room for; others give up their blocks only if it could not go on at all.

        If it has to wait for a step, it keeps what it holds.
        """
        while True:
            room = self.cache.room(text.table) * self.cache.sizes.block_size
            fitting = text.table.places + room - text.computed
            if fitting > 0:
                return min(tokens, fitting)
            victim = self._victim(text)
            if victim is None:
                return 0
            self._preempt(victim, draft)

    def _victim(self, needy: Continuation) -> Continuation | None:
        """The least urgent, latest running text behind the needy one, or of all if that has run longest."""
        tenant = needy.table.tenant
        own_only = not self.cache.tenant_room(tenant)
        oldest = min(self._running, key=_number)
        for text in reversed(self._running):
            if text is needy:
                if needy is not oldest:
                    break
            elif text is not oldest and (not own_only or text.table.tenant == tenant):
                return text
        return None

    def _preempt(self, text: Continuation, draft: Draft) -> None:
        """It gives up its blocks and waits to be computed again, before all that came after it."""
        draft.drop(text)
        draft.preempted += 1
        text.preemptions += 1
        self._stop(text)
        text.move(Phase.WAITING)
        self._waiting.put(text)

    def _stop(self, text: Continuation) -> None:
        del self._running[bisect_left(self._running, text.rank, key=_rank)]
        self.cache.release(text.table)
        text.computed = 0

    def _admit(self, draft: Draft, before: int | None = None) -> None:
        """Begin texts that wait, as long as there is room; with `before`, only more urgent ones than that."""
        full: set[str] = set()
        patience = _LOOKED_AT
        in_order = self._waiting.in_order(full)
        while draft.left and patience and len(self._running) < self._limits.running:
            text = next(in_order, None)
            if text is None:
                return
            if before is not None and text.priority >= before:
                return
            prefix = self.cache.prefix(text.table, text.tokens)
            if prefix.awaited is not None:
                patience -= 1
                continue
            match self._shortage(text, prefix):
                case Shortage.BLOCKS:
                    return
                case Shortage.TENANT:
                    full.add(text.table.tenant)
                case Shortage.NONE:
                    self._begin(text, prefix, draft)

    def _shortage(self, text: Continuation, prefix: Prefix) -> Shortage:
        """Whether all of its tokens would fit beside what running texts are going to need."""
        cache, tenant = self.cache, text.table.tenant
        own = [other for other in self._running if other.table.tenant == tenant]
        room = cache.pool.available - self._promised(self._running)
        own_room = cache.tenant_room(tenant) - self._promised(own)
        if cache.needed(len(text.tokens), prefix) <= min(room, own_room):
            return Shortage.NONE
        return Shortage.TENANT if own_room < room else Shortage.BLOCKS

    def _promised(self, running: Iterable[Continuation]) -> int:
        """Blocks for the tokens that texts have already, and one more for each."""
        blocks_of, most = self.cache.blocks_of, self.cache.sizes.max_blocks
        return sum(
            min(blocks_of(len(text.tokens)) + 1, most) - len(text.table.blocks) for text in running
        )

    def _begin(self, text: Continuation, prefix: Prefix, draft: Draft) -> None:
        self._waiting.take(text)
        self._waiting.began(text)
        text.move(Phase.RUNNING)
        insort(self._running, text, key=_rank)
        text.tokens = list(text.tokens)
        text.computed = self.cache.adopt(text.table, prefix.blocks, text.tokens)
        if text.found is None:
            text.found = text.computed
            draft.prefix_queries += text.prompt_tokens
            draft.prefix_hits += text.computed
        self._extend(text, draft)
