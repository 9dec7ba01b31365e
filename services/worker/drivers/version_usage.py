"""Counts the requests of one version: each that is admitted runs up a tab."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeAlias

from services.rpc.errors import InferplaneError
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.call_head import CallHead
from services.worker.domain.caller import Caller, id_bytes
from services.worker.domain.usage_row import UsageKind, UsageSubject
from services.worker.drivers.tab import NO_TAB, AnyTab, CallMark, Tab
from services.worker.ports.allowance import Allowance, Need, Reservation
from services.worker.ports.call import UnaryCall
from services.worker.ports.usage import Slot, UsageJournal

_MOST_KNOWN = 4096  # callers


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where this worker counts, and what callers may use."""

    journal: UsageJournal
    allowance: Allowance


class VersionUsage:
    """One event loop only."""

    is_counted = True

    def __init__(self, accounts: Accounts, spec: VersionSpec) -> None:
        """Assign only."""
        self.journal = accounts.journal
        self.allowance = accounts.allowance  # to be asked before `open_call`
        self.version = spec.name
        self._digest = spec.digest
        self._epoch = -1  # of the journal when numbers were learnt
        self._numbers: dict[Caller, int] = {}
        self._of_heads: dict[CallHead, int] = {}

    def enter(self, mark: CallMark, need: Need) -> AnyTab | Awaitable[AnyTab]:
        """Set aside what a request needs and count it from now on; awaitable if metering must be asked first.

        Raises ResourceExhaustedError that names a budget, UnavailableError while nothing can be counted.
        """
        reserved = self.allowance.reserve(mark.caller, self.version, need)
        if isinstance(reserved, Awaitable):
            return self._enter_later(reserved, mark, need)
        return self._tab(reserved, mark, need)

    def open_call(self, call: UnaryCall, rows: int, size: int) -> Slot:
        """`enter` without a tab, once its need is set aside."""
        if self._epoch != self.journal.epoch:
            self._forget()
        head = call.head
        subject = self._of_heads.get(head)
        if subject is None:
            subject = self._learn(head)
        return self.journal.open_call(subject, id_bytes(call.request_id), head.attempt, rows, size)

    async def _enter_later(
        self, reserved: Awaitable[Reservation], mark: CallMark, need: Need
    ) -> Tab:
        return self._tab(await reserved, mark, need)

    def _tab(self, reserved: Reservation, mark: CallMark, need: Need) -> Tab:
        tab = Tab(self.journal, reserved, need)
        try:
            tab.open(self._number(mark.caller), mark)
        except InferplaneError:
            reserved.release()
            raise
        return tab

    def _learn(self, head: CallHead) -> int:
        number = self._number(head.caller)
        if len(self._of_heads) >= _MOST_KNOWN:
            self._of_heads.clear()
        self._of_heads[head] = number
        return number

    def _number(self, caller: Caller) -> int:
        if self._epoch != self.journal.epoch:
            self._forget()
        number = self._numbers.get(caller)
        if number is None:
            number = self.journal.subject(
                UsageSubject(
                    caller.project,
                    caller.key,
                    caller.endpoint,
                    str(self.version),
                    self._digest,
                    UsageKind.SHADOW if caller.is_shadow else UsageKind.REQUEST,
                )
            )
            if self._epoch != self.journal.epoch:  # others gave up theirs for it
                self._forget()
            if len(self._numbers) >= _MOST_KNOWN:
                self._numbers.clear()
            self._numbers[caller] = number
        return number

    def _forget(self) -> None:
        self._epoch = self.journal.epoch
        self._numbers.clear()
        self._of_heads.clear()


class NoUsage:
    """Where nothing is counted."""

    is_counted = False

    def enter(self, _mark: CallMark, _need: Need) -> AnyTab | Awaitable[AnyTab]:
        """Anybody may enter."""
        return NO_TAB


NO_USAGE = NoUsage()
AnyUsage: TypeAlias = VersionUsage | NoUsage
