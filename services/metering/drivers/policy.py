"""The policy: what the edge must know, changed by writes and by the clock, followed by any number of readers."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from services.metering.domain.api_key import ApiKey
from services.metering.domain.policy import Span, key_spans, project_spans, signing_span
from services.metering.domain.policy_table import PolicyChange, PolicyTable
from services.metering.domain.project import Project
from services.metering.domain.signing_key import SigningKey
from services.metering.ports.identity_store import (
    IdentityStore,
    IdentityView,
    KeyQuery,
    Record,
    key_sort_key,
)
from services.rpc.clock import Clock
from services.rpc.errors import InvalidArgumentError
from services.rpc.pulse import Pulse

_PAGE = 1000  # records read at once
_LONGEST_WAIT = 60.0  # seconds; the wall clock may be set meanwhile


@dataclass(frozen=True, slots=True)
class PolicyNews:
    """Changes that bring a reader to a revision."""

    revision: int
    changes: Sequence[PolicyChange]


class Policy:
    """Holds the table of facts. Each reader's position is its own, so a slow one costs a writer nothing."""

    def __init__(self, clock: Clock, *, first_revision: int) -> None:
        self._clock = clock
        self._table = PolicyTable(first_revision)
        self._pulse = Pulse(first_revision)
        self._plans_changed = asyncio.Event()
        self.readers = 0

    def __len__(self) -> int:
        """How many facts hold."""
        return len(self._table)

    async def load(self, store: IdentityStore) -> None:
        """Take what is stored, and from then on what others store; before anything is followed or written."""
        now = self._clock.now()
        store.follow(self.take)

        async def work(view: IdentityView) -> None:
            self.put([signing_span(key) for key in await view.signing_keys()])
            after = ""
            while projects := await view.projects(after, _PAGE):
                self.put([span for project in projects for span in project_spans(project)])
                after = projects[-1].name.project
            await self._load_keys(view, now)

        await store.read(work)

    async def _load_keys(self, view: IdentityView, now: datetime) -> None:
        after = ""
        while keys := await view.keys(KeyQuery(limit=_PAGE, after=after, policy_at=now)):
            self.put([span for key in keys for span in key_spans(key)])
            after = key_sort_key(keys[-1])

    def take(self, records: Iterable[Record]) -> None:
        """Take what there is to know of records."""
        self.put([span for record in records for span in _spans(record)])

    def put(self, spans: Iterable[Span]) -> None:
        """Take what is said of some facts in place of what was; readers hear at once."""
        changed = self._table.put(spans, self._clock.now())
        self._plans_changed.set()
        if changed:
            self._pulse.tell(self._table.revision)

    async def run(self) -> None:
        """Let facts begin and end at their times until cancelled."""
        while True:
            self._plans_changed.clear()
            now = self._clock.now()
            if self._table.advance(now):
                self._pulse.tell(self._table.revision)
            due = self._table.next_change()
            until = None
            if due is not None:
                wait = min(max(0.0, (due - now).total_seconds()), _LONGEST_WAIT)
                until = self._clock.monotonic() + wait
            await self._clock.wait(self._plans_changed, until)

    async def follow(self, after_revision: int) -> AsyncIterator[PolicyNews]:
        """The first news bring the reader up to date; each later one holds all that changed since the one before."""
        if after_revision < 0:
            raise InvalidArgumentError.of_field(
                "after_revision", f"{after_revision}; allowed: 0, or a revision that was sent"
            )
        with self._counted():
            changes = (
                self._table.changes(after_revision) if after_revision else self._table.snapshot()
            )
            pulse = self._pulse
            while True:
                seen = self._table.revision
                yield PolicyNews(seen, changes)
                await pulse.wait_beyond(seen)
                changes = self._table.changes(seen)

    def interrupt(self) -> None:
        """End all following; who asks again may follow again."""
        interrupted, self._pulse = self._pulse, Pulse(self._table.revision)
        interrupted.close()

    def close(self) -> None:
        """End all following."""
        self._pulse.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1


def _spans(record: Record) -> Sequence[Span]:
    match record:
        case Project():
            return project_spans(record)
        case ApiKey():
            return key_spans(record)
        case SigningKey():
            return (signing_span(record),)
