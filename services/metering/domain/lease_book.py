"""All leases on all budgets: what holders say is taken down, and what is left is given out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.metering.domain.budget import Budget
from services.metering.domain.budget_account import Account, Lease, portion
from services.metering.domain.budget_index import BudgetIndex
from services.metering.domain.lease_exchange import (
    Alert,
    Answer,
    BudgetUse,
    Exchange,
    Grant,
    LeaseUse,
)
from services.rpc.calendar_window import WindowKind, window_end, window_start
from services.rpc.errors import AbortedError, InvalidArgumentError

# How long a window that has ended is remembered: a clock that steps back by less finds it as it was.
_KEPT_SECONDS = {WindowKind.MINUTE: 300, WindowKind.DAY: 3 * 86_400, WindowKind.MONTH: 62 * 86_400}
_MOST_ENDED = 64  # leases of one account that nobody renews, each by itself
_SCARCE_SECONDS = 2.0  # after somebody went short


@dataclass(frozen=True, slots=True)
class Moment:
    """Now: of the wall, for windows, and of the monotonic clock, for leases; in seconds."""

    wall: float
    monotonic: float


@dataclass(slots=True)
class _Holder:
    sequence: int
    deadline: float  # monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a budget stands in the window that runs."""

    window_start: int
    window_end: int
    used: int
    held: int
    unreported: int
    refused: int


class LeaseBook:
    """Budgets, their accounts, and the holders that live. What changed is `unsaved` until it is taken."""

    def __init__(
        self, budgets: BudgetIndex, lease_seconds: float, *, is_shared: bool = False
    ) -> None:
        """Begin without accounts.

        Args:
            budgets: that there are.
            lease_seconds: without an exchange, after which a holder is over.
            is_shared: other processes have books of the same accounts.
        """
        self.budgets = budgets
        self._is_shared = is_shared
        self._lease_seconds = lease_seconds
        self._accounts: dict[str, dict[int, Account]] = {}  # by budget, by start of the window
        self._holders: dict[str, _Holder] = {}
        self._scarce: dict[str, float] = {}  # until when, by budget
        self.unsaved: dict[tuple[str, int], Account | None] = {}  # None: gone
        self.alerts: list[Alert] = []  # not told yet

    @property
    def holders(self) -> int:
        """Holders that live."""
        return len(self._holders)

    def accounts(self) -> Iterator[Account]:
        """All of them."""
        return (account for windows in self._accounts.values() for account in windows.values())

    def restore(self, accounts: Iterable[Account], now: Moment) -> None:
        """Take back what was stored; holders get a whole lease's time to come again."""
        for account in accounts:
            self._accounts.setdefault(account.uid, {})[account.window_start] = account
            for holder, lease in account.leases.items():
                known = self._holders.setdefault(
                    holder, _Holder(0, now.monotonic + self._lease_seconds)
                )
                known.sequence = max(known.sequence, lease.sequence)

    def merge(self, accounts: Iterable[Account], holders: Mapping[str, int], now: Moment) -> None:
        """Take what other processes wrote: accounts as they are now, and sequences of holders that they answered."""
        for account in accounts:
            windows = self._accounts.setdefault(account.uid, {})
            known = windows.get(account.window_start)
            if known is not None and account.shortages > known.shortages:
                self._scarce[account.uid] = now.monotonic + _SCARCE_SECONDS
            windows[account.window_start] = account
        for holder, sequence in holders.items():
            self._holders[holder] = _Holder(sequence, now.monotonic + self._lease_seconds)

    def forget(self) -> None:
        """All accounts and holders, to merge everything anew; also what is unsaved or untold."""
        self._accounts.clear()
        self._holders.clear()
        self.unsaved, self.alerts = {}, []

    def sequence(self, holder: str) -> int | None:
        """Of the last exchange of a holder that lives."""
        known = self._holders.get(holder)
        return None if known is None else known.sequence

    def exchange(self, said: Exchange, now: Moment) -> tuple[Answer, bool]:
        """Take down what a holder says and answer it; True: the answer may go out only once `unsaved` is durable."""
        holder = self._holders.get(said.holder)
        if holder is not None and said.sequence <= holder.sequence:
            raise AbortedError(
                f"exchange {said.sequence} of {said.holder} is older than {holder.sequence}",
                reason="LEASE_SEQUENCE",
                metadata={"sequence": str(said.sequence), "taken": str(holder.sequence)},
            )
        self._holders[said.holder] = _Holder(said.sequence, now.monotonic + self._lease_seconds)
        grants, must_save = [], False
        for use in said.uses:
            grant, binds = self._use(said, use, now)
            grants.append(grant)
            must_save = must_save or binds
        answer = Answer(
            revision=self.budgets.revision,
            changed_projects=self.budgets.changed_since(said.revision) if said.revision else (),
            subjects=[self.budgets.of_subject(subject) for subject in said.subjects],
            grants=grants,
        )
        return answer, must_save

    def _use(self, said: Exchange, use: BudgetUse, now: Moment) -> tuple[Grant, bool]:
        budget = self.budgets.get(use.uid)
        if budget is None:
            return Grant(uid=use.uid, budget=None), False
        start = window_start(budget.window, now.wall)
        binds = False
        for lease in use.leases:
            binds = self._take_down(budget, said, lease) or binds
        self._close_unnamed(said.holder, use)
        account = self._account(budget.uid, start)
        given = self._give(budget, account, said, use, now)
        self._watch(budget, account)
        mine = account.leases.get(said.holder)
        grant = Grant(
            uid=budget.uid,
            budget=budget,
            window_start=start,
            window_left=window_end(budget.window, start) - now.wall,
            granted=mine.granted if mine is not None else 0,
            available=max(0, budget.amount - account.committed),
            held_by_others=self._held_by_others(account, said.holder),
            scarce=self._scarce.get(budget.uid, 0.0) > now.monotonic,
        )
        return grant, binds or given > 0

    def _take_down(self, budget: Budget, said: Exchange, told: LeaseUse) -> bool:
        """What the holder says is how it is; True if it will forget what it said."""
        if told.window_start != window_start(budget.window, told.window_start):
            raise InvalidArgumentError.of_field(
                "uses.leases.window_start",
                f"{told.window_start} is not the start of a {budget.window.name.lower()}",
            )
        account = self._account(budget.uid, told.window_start)
        if told.serial <= account.closed.get(said.holder, 0):
            return False  # counted already; the answer that said so was lost
        lease = account.leases.get(said.holder)
        if lease is not None and lease.sequence >= said.sequence:
            return False
        if lease is not None and lease.serial != told.serial:
            account.close(said.holder)  # the holder never heard of it, or has forgotten it
            lease = None
        if lease is None:
            lease = account.leases[said.holder] = Lease(serial=told.serial)
        lease.granted, lease.used = max(0, told.granted), max(0, told.used)
        lease.refused, lease.sequence = max(0, told.refused), said.sequence
        if told.is_closed:
            account.close(said.holder)
        self._changed(account)
        self._watch(budget, account)
        return told.is_closed

    def _close_unnamed(self, holder: str, use: BudgetUse) -> None:
        """Leases that the holder doesn't speak of: the answers that granted them were lost."""
        named = {lease.serial for lease in use.leases}
        for account in self._accounts.get(use.uid, {}).values():
            lease = account.leases.get(holder)
            if lease is not None and lease.serial not in named:
                account.close(holder)
                self._changed(account)

    def _give(
        self, budget: Budget, account: Account, said: Exchange, use: BudgetUse, now: Moment
    ) -> int:
        """Grant what the holder asks for, as far as there is anything."""
        if budget.shadow or not (use.needed or use.wanted):
            return 0
        available = budget.amount - account.committed
        is_scarce = self._scarce.get(budget.uid, 0.0) > now.monotonic
        sharers = sum(1 for holder in account.leases if holder in self._holders)
        given = portion(
            available=available,
            needed=use.needed,
            wanted=0 if is_scarce else use.wanted,
            least=use.least,
            sharers=sharers + (said.holder not in account.leases),
        )
        if given < use.needed and self._held_by_others(account, said.holder):
            self._scarce[budget.uid] = now.monotonic + _SCARCE_SECONDS
            if self._is_shared:
                account.shortages += 1
                self._changed(account)
        if given <= 0:
            return 0
        lease = account.leases.setdefault(said.holder, Lease(serial=said.sequence))
        # What was used beyond the grant, because metering was away, is paid from what is given.
        lease.granted = max(lease.granted, lease.used) + given
        lease.sequence = said.sequence
        self._changed(account)
        return given

    def _watch(self, budget: Budget, account: Account) -> None:
        used = account.used
        for percent in budget.alert_percents:
            if percent > account.alerted and used * 100 >= percent * budget.amount:
                account.alerted = percent
                self._changed(account)
                self.alerts.append(
                    Alert(
                        budget=budget,
                        window_start=account.window_start,
                        percent=percent,
                        used=used,
                    )
                )

    def standing(self, budget: Budget, now: Moment) -> Standing:
        """Where a budget stands; changes nothing."""
        start = window_start(budget.window, now.wall)
        account = self._account(budget.uid, start)
        return Standing(
            window_start=start,
            window_end=window_end(budget.window, start),
            used=account.used,
            held=account.held(self._holders),
            unreported=account.unreported(self._holders),
            refused=account.refusals,
        )

    def drop(self, uid: str) -> None:
        """The budget is gone, and all that was said of it."""
        for account in list(self._accounts.get(uid, {}).values()):
            self._forget(account)
        self._scarce.pop(uid, None)

    def end_leases(self, now: Moment) -> Sequence[str]:
        """Holders that didn't come in time; what they didn't report is theirs until they do."""
        over = [name for name, holder in self._holders.items() if holder.deadline <= now.monotonic]
        for name in over:
            del self._holders[name]
        return over

    def tidy(self, now: Moment) -> None:
        """Forget windows that are long over, and count many leases that ended as one."""
        for account in list(self.accounts()):
            budget = self.budgets.get(account.uid)
            open_leases = sum(1 for holder in account.leases if holder in self._holders)
            if budget is None or (not open_leases and self._is_over(budget, account, now)):
                self._forget(account)
            elif len(account.leases) - open_leases > _MOST_ENDED:
                for holder in [name for name in account.leases if name not in self._holders]:
                    account.fold(holder)
                account.closed = {h: s for h, s in account.closed.items() if h in self._holders}
                self._changed(account)
        self._scarce = {u: until for u, until in self._scarce.items() if until > now.monotonic}

    @staticmethod
    def _is_over(budget: Budget, account: Account, now: Moment) -> bool:
        end = window_end(budget.window, account.window_start)
        return end + _KEPT_SECONDS[budget.window] < now.wall

    def _held_by_others(self, account: Account, holder: str) -> int:
        mine = account.leases.get(holder)
        return account.held(self._holders) - (mine.held if mine is not None else 0)

    def next_deadline(self) -> float | None:
        """When the next holder's leases end."""
        return min((holder.deadline for holder in self._holders.values()), default=None)

    def _account(self, uid: str, start: int) -> Account:
        """The account, which is kept once something is written into it."""
        return self._accounts.get(uid, {}).get(start) or Account(uid, start)

    def _changed(self, account: Account) -> None:
        self._accounts.setdefault(account.uid, {})[account.window_start] = account
        self.unsaved[account.key] = account

    def _forget(self, account: Account) -> None:
        windows = self._accounts[account.uid]
        del windows[account.window_start]
        if not windows:
            del self._accounts[account.uid]
        self.unsaved[account.key] = None
