"""What counts in tests: a journal that keeps rows in memory, and an allowance that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from services.rpc.errors import InferplaneError
from services.rpc.names import VersionName
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.caller import Caller
from services.worker.domain.need import Need
from services.worker.domain.signature import Signature
from services.worker.domain.usage_row import Ended, Opened, Outcome, UsageSubject
from services.worker.domain.waiting import RunShare
from services.worker.drivers.version_usage import Accounts, VersionUsage
from services.worker.ports.allowance import Reservation
from services.worker.ports.usage import AnsweredCall, Slot


@dataclass
class Entry:
    """One request."""

    opened: Opened
    subject: UsageSubject
    delivered: list[tuple[int, int]] = field(default_factory=list)
    ended: Ended | None = None


@dataclass
class Rows:
    """UsageJournal in memory."""

    epoch: int = 0
    refusal: InferplaneError | None = None
    subjects: list[UsageSubject] = field(default_factory=list)
    open_ones: dict[int, Entry] = field(default_factory=dict)
    rows: list[Entry] = field(default_factory=list)
    number: int = 0

    def subject(self, subject: UsageSubject) -> int:
        if subject not in self.subjects:
            self.subjects.append(subject)
        return self.subjects.index(subject)

    def open(self, opened: Opened) -> Slot:
        if self.refusal is not None:
            raise self.refusal
        self.number += 1
        self.open_ones[self.number] = Entry(opened, self.subjects[opened.subject])
        return Slot(self.number)

    def open_call(
        self, subject: int, request_id: bytes, attempt: int, rows: int, size: int
    ) -> Slot:
        return self.open(Opened(request_id, subject, 0, attempt, 0, rows, size))

    def cancel(self, slot: Slot) -> None:
        del self.open_ones[slot]

    def deliver(self, slot: Slot, output_tokens: int, response_bytes: int) -> None:
        self.open_ones[slot].delivered.append((output_tokens, response_bytes))

    def end(self, slot: Slot, ended: Ended, told: bytes = b"") -> None:
        entry = self.open_ones.pop(slot)
        entry.ended = ended
        self.rows.append(entry)

    def end_all(self, slots: Sequence[Slot], ended: Sequence[Ended]) -> None:
        for slot, how in zip(slots, ended, strict=True):
            self.end(slot, how)

    def end_calls(self, calls: Sequence[AnsweredCall], run: RunShare, now: float) -> None:
        for slot, _, rows, size in calls:
            self.end(slot, Ended(1, Outcome.OK, 1, run.of(rows), 0, 0, size))

    @property
    def outcomes(self) -> list[Outcome]:
        """Of the rows, in their order."""
        return [entry.ended.outcome for entry in self.rows if entry.ended is not None]


@dataclass
class Set:
    """Reservation: what became of it."""

    need: Need
    most: int | None = None
    used: list[Need] = field(default_factory=list)
    released: int = 0

    def settle(self, used: Need) -> None:
        self.used.append(used)

    def release(self) -> None:
        self.released += 1

    def stop_after(self) -> int | None:
        return self.most

    def trailers(self) -> Sequence[tuple[str, str]]:
        return (("x-ratelimit-remaining-tokens", "7"),)

    @property
    def ended(self) -> int:
        """How often it came to an end."""
        return len(self.used) + self.released


@dataclass
class Told:
    """Allowance: refuses, lets wait, or sets aside."""

    most: int | None = None  # output tokens
    refusal: InferplaneError | None = None
    gate: asyncio.Event | None = None  # who comes waits for it
    sets: list[Set] = field(default_factory=list)

    def reserve(
        self, caller: Caller, version: VersionName, need: Need
    ) -> Reservation | Awaitable[Reservation]:
        if self.gate is not None:
            return self._later(need)
        return self._set(need)

    async def _later(self, need: Need) -> Reservation:
        assert self.gate is not None
        await self.gate.wait()
        return self._set(need)

    def _set(self, need: Need) -> Set:
        if self.refusal is not None:
            raise self.refusal
        self.sets.append(Set(need, self.most))
        return self.sets[-1]


@dataclass
class Counting:
    """A version's usage, and what was counted."""

    rows: Rows = field(default_factory=Rows)
    allowance: Told = field(default_factory=Told)

    def usage(self) -> VersionUsage:
        """For a version."""
        spec = VersionSpec(
            name=VersionName("m", "1"), digest="d" * 64, files=(), signature=Signature((), ())
        )
        return VersionUsage(Accounts(self.rows, self.allowance), spec)

    def check(self) -> None:
        """Nothing is left open, and each reservation has ended once."""
        assert self.rows.open_ones == {}
        assert [one.ended for one in self.allowance.sets] == [1] * len(self.allowance.sets)
