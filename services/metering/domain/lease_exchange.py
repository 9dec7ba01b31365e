"""What a holder of leases says and hears in one exchange."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.metering.domain.budget import Budget


@dataclass(frozen=True, slots=True)
class Subject:
    """Who calls what."""

    project: str
    key: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """What the holder has and did in one window."""

    window_start: int
    granted: int
    used: int
    refused: int
    is_closed: bool
    serial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """One budget at one holder."""

    uid: str
    leases: Sequence[LeaseUse]
    needed: int = 0
    wanted: int = 0
    least: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """All that a holder says."""

    holder: str
    sequence: int
    revision: int = 0
    subjects: Sequence[Subject] = ()
    uses: Sequence[BudgetUse] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Answer to a BudgetUse. None as budget: it is gone."""

    uid: str
    budget: Budget | None
    window_start: int = 0
    window_left: float = 0.0  # seconds
    granted: int = 0
    available: int = 0
    held_by_others: int = 0
    scarce: bool = False


@dataclass(frozen=True, slots=True)
class SubjectBudgets:
    """Budgets that bind a caller."""

    budgets: Sequence[Budget]
    project_has_none: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that a holder hears. None as changed projects: too many to name."""

    revision: int
    changed_projects: Sequence[str] | None
    subjects: Sequence[SubjectBudgets]
    grants: Sequence[Grant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """So much of a budget was used, said once in a window."""

    budget: Budget
    window_start: int
    percent: int
    used: int
