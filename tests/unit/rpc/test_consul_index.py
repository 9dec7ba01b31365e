"""The index rules of blocking queries, as a table."""

import pytest

from services.rpc.consul_index import next_index


@pytest.mark.parametrize(
    ("asked", "answered", "following"),
    [
        pytest.param(0, 7, 7, id="the first answer's index is waited beyond"),
        pytest.param(7, 9, 9, id="it grows with news"),
        pytest.param(7, 7, 7, id="the wait has ended without news"),
        pytest.param(7, 3, 0, id="it went backwards: begin anew"),
        pytest.param(7, 0, 0, id="zero would never wait: begin anew"),
        pytest.param(7, -1, 0, id="below zero: begin anew"),
        pytest.param(7, None, 0, id="none: begin anew"),
        pytest.param(0, None, 0, id="none at the beginning"),
        pytest.param(0, 1, 1, id="one is an index"),
        pytest.param(2**63, 2**64 - 1, 2**64 - 1, id="as large as Consul's numbers are"),
    ],
)
def test_next_index(asked: int, answered: int | None, following: int) -> None:
    """What the next question waits beyond."""
    assert next_index(asked, answered) == following
