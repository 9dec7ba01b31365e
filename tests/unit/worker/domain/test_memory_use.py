"""When memory is given back."""

import pytest

from services.worker.domain.memory_use import MemoryUse

MIB = 1024**2


@pytest.mark.parametrize(
    ("now", "resident", "turnover", "due"),
    [
        pytest.param(11.0, 105 * MIB, 1, False, id="five percent are nothing"),
        pytest.param(11.0, 106 * MIB, 1, True, id="more than that is given back"),
        pytest.param(9.0, 200 * MIB, 1, False, id="not so soon after the last time"),
        pytest.param(1.0, 100 * MIB, 2, True, id="a model came or went"),
        pytest.param(11.0, 50 * MIB, 1, False, id="it shrank by itself"),
    ],
)
def test_when_it_is_due(now: float, resident: int, turnover: int, due: bool) -> None:
    """After 100 MiB were left at second 0, and at least ten seconds between."""
    use = MemoryUse(10.0)
    use.released(0.0, 100 * MIB, 1)
    assert use.is_due(now, resident, turnover) is due


def test_a_small_process_is_left_alone() -> None:
    """Growth of less than four MiB is not worth it, whatever part of the process it is."""
    use = MemoryUse(10.0)
    use.released(0.0, 20 * MIB, 1)
    assert not use.is_due(20.0, 24 * MIB, 1)
    assert use.is_due(20.0, 24 * MIB + 1, 1)


def test_what_cannot_be_given_back_is_not_tried_again() -> None:
    """What is left after a release is what growth is measured from."""
    use = MemoryUse(10.0)
    use.released(0.0, 100 * MIB, 1)
    assert use.is_due(20.0, 150 * MIB, 1)
    use.released(20.0, 149 * MIB, 1)
    assert not use.is_due(40.0, 150 * MIB, 1)
