"""Callers of the engine who leave, or are late, at any moment."""

import pytest

from benchmarks.llm.cancels import cancels
from services.rpc.errors import Kind

pytestmark = pytest.mark.extended


async def test_nothing_stays_of_calls_that_end_around_the_time_of_an_answer() -> None:
    """Whatever was told is right, each call is counted once, and no block is held at the end."""
    sums = await cancels(1500)
    assert sums.outcomes[Kind.CANCELLED] > 100
    assert sums.outcomes[Kind.DEADLINE_EXCEEDED] > 50
    assert sums.preemptions
    assert sums.prefix_hits
