"""What a request costs a budget."""

import pytest

from services.worker.domain.budget_terms import (
    BudgetUnit,
    Rates,
    cost,
    cost_before_output,
    cost_of_token,
)
from services.worker.domain.need import Need

NEED = Need(input_tokens=100, cached_tokens=60, output_tokens=10, rows=2, compute_seconds=0.25)
RATES = Rates(
    request=5,
    input_token=3,
    cached_token=1,
    output_token=7,
    compute_second=4_000_000,
    row=11,
)


@pytest.mark.parametrize(
    ("unit", "whole", "before", "token"),
    [
        (BudgetUnit.TOKENS, 110, 100, 1),
        (BudgetUnit.REQUESTS, 1, 1, 0),
        (BudgetUnit.MONEY, 1_000_277, 1_000_207, 7),
    ],
)
def test_each_unit_counts_its_own(unit: BudgetUnit, whole: int, before: int, token: int) -> None:
    """Tokens in and out, one a request, or what the ledger will charge: cached tokens at their own price."""
    assert cost(unit, NEED, RATES) == whole
    assert cost_before_output(unit, NEED, RATES) == before
    assert cost_of_token(unit, RATES) == token
    if token:
        assert before + token * NEED.output_tokens == whole
