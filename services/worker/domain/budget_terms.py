"""A budget as workers know it, and what a request costs it."""

from dataclasses import dataclass
from enum import Enum

from services.rpc.calendar_window import WindowKind
from services.worker.domain.need import Need

_MICROSECONDS = 1_000_000


class BudgetUnit(Enum):
    """What is counted; values are those of the protocol."""

    TOKENS = 1
    REQUESTS = 2
    MONEY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTerms:
    """What binds calls. Amounts are in parts of the unit: tokens, requests, or 10^-12 of the currency."""

    uid: str
    name: str  # `projects/{project}/budgets/{budget}`
    unit: BudgetUnit
    window: WindowKind
    amount: int
    shadow: bool = False
    stop_streams: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Prices of one version for one project: 10^-12 of the currency for one unit."""

    request: int = 0
    input_token: int = 0  # computed
    cached_token: int = 0
    output_token: int = 0
    compute_second: int = 0
    row: int = 0


def cost(unit: BudgetUnit, need: Need, rates: Rates) -> int:
    """What a request takes from a budget of that unit, in parts."""
    if unit is BudgetUnit.TOKENS:
        return need.input_tokens + need.output_tokens
    if unit is BudgetUnit.REQUESTS:
        return 1
    return _money(need, rates) + need.output_tokens * rates.output_token


def cost_before_output(unit: BudgetUnit, need: Need, rates: Rates) -> int:
    """What it takes before it has written anything."""
    if unit is BudgetUnit.TOKENS:
        return need.input_tokens
    if unit is BudgetUnit.REQUESTS:
        return 1
    return _money(need, rates)


def cost_of_token(unit: BudgetUnit, rates: Rates) -> int:
    """What each token adds that it writes."""
    if unit is BudgetUnit.TOKENS:
        return 1
    return rates.output_token if unit is BudgetUnit.MONEY else 0


def _money(need: Need, rates: Rates) -> int:
    # As the ledger charges it: by whole microseconds.
    compute = round(need.compute_seconds * _MICROSECONDS) * (rates.compute_second // _MICROSECONDS)
    return (
        rates.request
        + (need.input_tokens - need.cached_tokens) * rates.input_token
        + need.cached_tokens * rates.cached_token
        + need.rows * rates.row
        + compute
    )
