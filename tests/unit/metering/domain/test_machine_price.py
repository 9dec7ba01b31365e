"""What a pool's machines cost in a span of time."""

from datetime import UTC, datetime

import pytest

from services.metering.domain.machine_price import MachinePrice, MachinePriceId, pool_cost

HOUR = 3600 * 10**9


def price(number: int, amount: int, machines: int, hour: int) -> MachinePrice:
    return MachinePrice(
        id=MachinePriceId(number),
        pool="gpu",
        hourly_amount=amount,
        machines=machines,
        valid_from_ns=hour * HOUR,
        create_time=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("prices", "since", "until", "cost"),
    [
        pytest.param([], 0, 10, None, id="no price is known"),
        pytest.param([price(1, 100, 2, 0)], 0, 10, 2000, id="two machines for ten hours"),
        pytest.param([price(1, 100, 2, 4)], 0, 10, 1200, id="from the fourth hour on"),
        pytest.param([price(1, 100, 1, 20)], 0, 10, None, id="none yet"),
        pytest.param([price(1, 100, 1, 0), price(2, 50, 1, 6)], 0, 10, 800, id="cheaper later"),
        pytest.param([price(1, 100, 1, 0), price(2, 100, 0, 6)], 0, 10, 600, id="given back"),
        pytest.param([price(1, 100, 1, 0), price(2, 70, 1, 0)], 0, 10, 700, id="put right at once"),
    ],
)
def test_cost_of_a_pool(
    prices: list[MachinePrice], since: int, until: int, cost: int | None
) -> None:
    """Each price counts from its time until the next one's, whether the machines compute or not."""
    assert pool_cost(prices, "gpu", since * HOUR, until * HOUR) == cost


def test_other_pools_cost_nothing_here() -> None:
    """Prices are of one pool."""
    assert pool_cost([price(1, 100, 2, 0)], "cpu", 0, HOUR) is None
