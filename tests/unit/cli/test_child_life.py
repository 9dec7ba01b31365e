"""Life of a supervised process: order of states, back-off, crash loops; time is moved by hand."""

import pytest

from services.cli.domain.child_life import (
    ChildLife,
    ChildState,
    IllegalTransitionError,
    RestartPolicy,
    describe_exit,
)

_POLICY = RestartPolicy(
    first_delay=1.0, factor=2.0, longest_delay=5.0, reset_after=10.0, loop_after=3
)


def test_short_lives_double_the_delay_up_to_the_longest() -> None:
    """Each short life doubles the wait, which never passes the longest."""
    life = ChildLife(_POLICY)
    delays = []
    for second in range(5):
        life.started(second)
        delays.append(life.died(second + 0.5))
    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("lived", "delay"),
    [
        pytest.param(9.9, 4.0, id="a life short of the limit counts on"),
        pytest.param(10.0, 1.0, id="a life as long as the limit forgets earlier deaths"),
    ],
)
def test_long_life_resets_the_delay(lived: float, delay: float) -> None:
    """A life of `reset_after` seconds makes the next death the first one."""
    life = ChildLife(_POLICY)
    for _ in range(2):
        life.started(0.0)
        life.died(0.1)
    life.started(100.0)
    assert life.died(100.0 + lived) == delay


def test_crash_loop_is_seen_after_the_agreed_number_of_deaths() -> None:
    """The third short life in a row is a crash loop; a long life ends it."""
    life = ChildLife(_POLICY)
    seen = []
    for _ in range(3):
        life.started(0.0)
        life.died(0.1)
        seen.append(life.is_crash_looping)
    life.started(0.0)
    life.died(60.0)
    assert seen == [False, False, True]
    assert not life.is_crash_looping


def test_delay_never_overflows() -> None:
    """A night of crashes still gives the longest delay."""
    assert _POLICY.delay(100_000) == 5.0


@pytest.mark.parametrize(
    ("states", "ends_as"),
    [
        pytest.param([], ChildState.ENDED, id="never started: ends at once"),
        pytest.param(["started"], ChildState.STOPPING, id="running: ends with its process"),
        pytest.param(["started", "died"], ChildState.ENDED, id="waiting: is not started again"),
    ],
)
def test_stop_from_every_state(states: list[str], ends_as: ChildState) -> None:
    """Asking to end leads to the right state from wherever it stands, and asking twice changes nothing."""
    life = ChildLife(_POLICY)
    for state in states:
        getattr(life, state)(0.0)
    life.stop()
    life.stop()
    assert life.state is ends_as
    assert life.stops


def test_illegal_transitions_raise() -> None:
    """What the table does not list can't happen."""
    life = ChildLife(_POLICY)
    with pytest.raises(IllegalTransitionError, match="waiting can't follow idle"):
        life.died(0.0)
    life.stop()
    with pytest.raises(IllegalTransitionError, match="running can't follow ended"):
        life.started(0.0)


def test_exit_in_words() -> None:
    """Signals and exit codes read as what they are."""
    assert describe_exit(-9) == "was killed by signal 9"
    assert describe_exit(3) == "exited with code 3"
