"""Where a worker gets its parts of budgets from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.budget_share import BudgetUse, Grant
from services.worker.domain.budget_terms import BudgetTerms, Rates
from services.worker.domain.caller import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """What this worker says. An answer to an older report than the last is of no use to it."""

    sequence: int
    revision: int  # of budgets, as last heard; 0: never
    callers: Sequence[Caller]  # whose budgets it doesn't know
    uses: Sequence[BudgetUse]
    rates: Sequence[tuple[str, VersionName]]  # wanted, by project and version


@dataclass(frozen=True, slots=True)
class CallerTerms:
    """Budgets that bind a caller."""

    budgets: Sequence[BudgetTerms]
    project_has_none: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer:
    """What metering says; sequences in the order of the report's. None as changed projects: all."""

    lease_seconds: float
    next_seconds: float
    revision: int
    changed_projects: Sequence[str] | None
    callers: Sequence[CallerTerms]
    grants: Sequence[Grant]
    rates: Sequence[Rates]
    price_revision: str = ""  # another one whenever other prices count than before


class LeaseExchange(Protocol):
    """One report at a time."""

    async def exchange(self, report: LeaseReport) -> LeaseAnswer:
        """Raises UnavailableError if there is no answer; whether the report arrived is not known then."""
        ...
