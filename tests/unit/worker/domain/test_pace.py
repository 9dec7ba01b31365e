"""When a run may be computed without a thread: only what has proved to be short."""

from services.worker.domain.pace import Pace

SHORT, LONG = 0.0001, 0.01


def _after(*runs: tuple[int, float]) -> Pace:
    pace = Pace()
    for rows, seconds in runs:
        pace.note(rows, seconds)
    return pace


def test_nothing_is_short_before_it_has_proved_so() -> None:
    """Seven short runs are not enough, eight are."""
    assert not _after(*[(1, SHORT)] * 7).is_short(1)
    assert _after(*[(1, SHORT)] * 8).is_short(1)


def test_more_rows_than_ever_are_not_trusted() -> None:
    """A batch larger than any that was short has to prove itself in a thread."""
    pace = _after(*[(4, SHORT)] * 8)
    assert pace.is_short(4)
    assert not pace.is_short(5)


def test_one_long_run_takes_all_trust() -> None:
    """After a long run the proof begins anew, for every size."""
    pace = _after(*[(4, SHORT)] * 20, (4, LONG))
    assert not pace.is_short(1)
    pace.note(1, SHORT)
    assert not pace.is_short(1)
