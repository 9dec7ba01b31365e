"""Which of several attempts is the request."""

from itertools import permutations

import pytest

from services.metering.domain.attempts import Attempt, RowId, losses
from services.metering.domain.usage import Outcome

KEY = (b"r" * 16, 0, False)


def attempt(row: int, number: int, outcome: Outcome, ends: int = 10) -> Attempt:
    return Attempt(
        row=RowId(row),
        key=KEY,
        attempt=number,
        outcome=outcome,
        start_ns=0,
        duration_ns=ends,
        quantities=(row,),
        counts=True,
    )


@pytest.mark.parametrize(
    ("rivals", "winner"),
    [
        pytest.param(
            [attempt(1, 1, Outcome.FAILED), attempt(2, 2, Outcome.OK)], 2, id="a retry went well"
        ),
        pytest.param(
            [attempt(1, 1, Outcome.OK, 9), attempt(2, 2, Outcome.OK, 5)], 2, id="a hedge was faster"
        ),
        pytest.param(
            [attempt(1, 1, Outcome.OK, 5), attempt(2, 2, Outcome.CANCELLED, 5)],
            1,
            id="the slower hedge was cancelled",
        ),
        pytest.param(
            [attempt(1, 1, Outcome.ABORTED, 1), attempt(2, 2, Outcome.FAILED, 9)],
            2,
            id="the caller was told the last failure",
        ),
        pytest.param(
            [
                attempt(1, 1, Outcome.ABORTED),
                attempt(2, 2, Outcome.OK, 7),
                attempt(3, 3, Outcome.OK, 6),
            ],
            3,
            id="of three",
        ),
    ],
)
def test_the_winner_is_the_same_in_any_order(rivals: list[Attempt], winner: int) -> None:
    """Whoever comes first or last, the same attempt is the request, and all others give way."""
    for order in permutations(rivals):
        found = losses([], order)
        assert {loss.loser.row for loss in found} == {one.row for one in rivals} - {winner}
        assert {loss.winner for loss in found} == {winner}
        assert {loss.attempts for loss in found} == {max(one.attempt for one in rivals)}


def test_first_attempts_are_no_rivals() -> None:
    """The same id twice as a first attempt came past the edge: these are two requests."""
    assert losses([attempt(1, 1, Outcome.OK)], [attempt(2, 1, Outcome.OK)]) == []


def test_parts_and_shadows_are_requests_of_their_own() -> None:
    """Parts of a stream and mirrored copies have the same id, and are not attempts."""
    from dataclasses import replace

    one = attempt(1, 1, Outcome.OK)
    others = [
        replace(attempt(2, 2, Outcome.OK), key=(KEY[0], 1, False)),
        replace(attempt(3, 2, Outcome.OK), key=(KEY[0], 0, True)),
    ]
    assert losses([one], others) == []
