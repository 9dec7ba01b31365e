"""Tagged rows return to their owners; the full size, 200,000 requests, is `python -m benchmarks.soak`."""

import pytest

from benchmarks.soak import Soak

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("seed", [1, 2])
async def test_each_request_ends_once_with_its_own_rows(seed: int) -> None:
    """Mixed sizes, lengths, cancels, timeouts and refusals over four instances; every answer is checked."""
    soak = Soak(4000, seed=seed)
    await soak.run()
    assert soak.outcomes["answered"] > 2000
    assert soak.outcomes["left"] > 0
    assert soak.outcomes["INVALID_ARGUMENT"] > 0
    assert soak.meter.padded > 0
