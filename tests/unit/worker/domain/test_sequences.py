"""All sequences of a version: turns, states, idle times, bounds. Time is an argument."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.rpc.errors import FailedPreconditionError, ResourceExhaustedError
from services.worker.domain.assignment import SequenceLimits
from services.worker.domain.sequence_part import SequencePart
from services.worker.domain.sequence_state import State
from services.worker.domain.sequences import Key, LineLimits, Sequences, Turn

FIRST: State = {"s": np.zeros(1, np.float32)}
_COST = 4 + 512  # bytes of one sequence


def sequences(max_bytes: int = 1 << 20, turns: int = 100, size: int = 1 << 20) -> Sequences:
    return Sequences(SequenceLimits((), 60.0, max_bytes), LineLimits(turns, size), FIRST)


def turn(number: int = 1, *, starts: bool = False, ends: bool = False, tenant: str = "") -> Turn:
    return Turn((tenant, number), SequencePart(number, starts, ends), 10)


def state(value: float) -> State:
    return {"s": np.array([value], np.float32)}


def ran(table: Sequences, one: Turn, value: float, now: float = 0.0) -> float:
    """One turn alone: the state that it saw; afterwards the state is `value`."""
    assert table.arrive(one, now)
    seen = table.begin(one, now)
    table.commit(one, state(value), now)
    assert table.end(one, now) is None
    table.check()
    return float(seen["s"][0])


def test_a_sequence_from_start_to_end() -> None:
    """Zeros first, then what was committed; after its end it is unknown."""
    table = sequences()
    assert ran(table, turn(starts=True), 3.0) == 0.0
    assert ran(table, turn(), 5.0) == 3.0
    assert ran(table, turn(ends=True), 9.0) == 5.0
    assert (len(table), table.size) == (0, 0)
    assert table.arrive(turn(), 0.0)
    with pytest.raises(FailedPreconditionError, match="sequence 1 has not begun") as caught:
        table.begin(next(iter(table._sequences.values())).line[0], 0.0)
    assert caught.value.reason == "SEQUENCE_UNKNOWN"


def test_start_of_a_running_sequence_begins_it_anew() -> None:
    """The old state is gone once the new first request has succeeded, and stays if it fails."""
    table = sequences()
    ran(table, turn(starts=True), 3.0)
    failed = turn(starts=True)
    assert table.arrive(failed, 0.0)
    assert table.begin(failed, 0.0) is FIRST
    table.end(failed, 0.0)
    assert ran(table, turn(), 4.0) == 3.0
    assert ran(table, turn(starts=True), 1.0) == 0.0
    assert ran(table, turn(), 1.0) == 1.0


def test_a_failed_start_leaves_nothing() -> None:
    """No state, no bytes."""
    table = sequences()
    one = turn(starts=True)
    assert table.arrive(one, 0.0)
    table.begin(one, 0.0)
    assert table.size == _COST
    table.end(one, 0.0)
    assert table.size == 0
    table.check()


def test_tenants_share_no_sequence() -> None:
    """The same id of another tenant is another sequence."""
    table = sequences()
    ran(table, turn(starts=True, tenant="a"), 3.0)
    with pytest.raises(FailedPreconditionError):
        ran(table, turn(tenant="b"), 1.0)


def test_one_turn_at_a_time_in_order() -> None:
    """Others of the sequence wait; other sequences don't."""
    table = sequences()
    first, second, third = turn(starts=True), turn(), turn()
    assert table.arrive(first, 0.0)
    assert not table.arrive(second, 0.0)
    assert not table.arrive(third, 0.0)
    assert table.arrive(turn(2, starts=True), 0.0)
    assert table.end(second, 0.0) is None  # its caller has gone
    assert table.end(first, 0.0) is third
    assert table.end(first, 0.0) is None  # again is harmless
    table.check()


def test_idle_sequences_are_forgotten() -> None:
    """After the idle timeout, counted from the end of the last request; not while one runs."""
    table = sequences()
    ran(table, turn(1, starts=True), 1.0, now=0.0)
    ran(table, turn(2, starts=True), 2.0, now=30.0)
    assert table.next_expiry() == 60.0
    running = turn(1)
    assert table.arrive(running, 59.0)
    table.expire(95.0)
    assert len(table) == 1  # the second has gone
    table.begin(running, 95.0)
    table.end(running, 100.0)
    table.expire(159.0)
    assert len(table) == 1
    table.expire(160.0)
    assert (len(table), table.size, table.next_expiry()) == (0, 0, None)


def test_states_are_bounded() -> None:
    """Beyond the bound a new sequence is refused with the time after which one may end; those that run go on."""
    table = sequences(max_bytes=2 * _COST)
    ran(table, turn(1, starts=True), 1.0, now=0.0)
    ran(table, turn(2, starts=True), 1.0, now=10.0)
    third = turn(3, starts=True)
    assert table.arrive(third, 20.0)
    with pytest.raises(ResourceExhaustedError) as caught:
        table.begin(third, 20.0)
    assert (caught.value.reason, caught.value.retry_after) == ("SEQUENCES_FULL", 40.0)
    table.end(third, 20.0)
    assert ran(table, turn(1), 2.0, now=20.0) == 1.0
    ran(table, turn(2, ends=True), 0.0, now=20.0)
    ran(table, turn(3, starts=True), 1.0, now=20.0)


def test_what_waits_is_bounded() -> None:
    """In number and bytes, over all sequences."""
    table = sequences(turns=2)
    table.arrive(turn(starts=True), 0.0)
    table.arrive(turn(), 0.0)
    with pytest.raises(ResourceExhaustedError, match="3 requests"):
        table.arrive(turn(2, starts=True), 0.0)
    table = sequences(size=15)
    table.arrive(turn(starts=True), 0.0)
    with pytest.raises(ResourceExhaustedError, match="20 bytes"):
        table.arrive(turn(), 0.0)
    table.check()


@dataclass
class _Modelled:
    """What one sequence must be."""

    value: float | None = None  # None: not begun
    last: float = 0.0
    line: list[Turn] = field(default_factory=list)


class AnyInterleaving(RuleBasedStateMachine):
    """Against the plainest model: a number and a list for each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.table = sequences(max_bytes=3 * _COST)
        self.model: dict[Key, _Modelled] = {}
        self.running: dict[Key, float] = {}  # what the run saw
        self.now = 0.0

    @rule(number=st.integers(1, 4), tenant=st.sampled_from("ab"), starts=st.booleans(), ends=st.booleans())  # fmt: skip
    def arrive(self, number: int, tenant: str, starts: bool, ends: bool) -> None:
        one = turn(number, starts=starts, ends=ends, tenant=tenant)
        self._forget()
        known = self.model.setdefault(one.key, _Modelled())
        known.line.append(one)
        if self.table.arrive(one, self.now):
            assert len(known.line) == 1
            self._begin(one)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), succeeds=st.booleans())
    def end(self, data: st.DataObject, succeeds: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        one, seen = self.model[key].line[0], self.running.pop(key)
        if succeeds:
            self.table.commit(one, state(seen + 1), self.now)
            self.model[key].value = None if one.part.ends else seen + 1
        self._over(one)

    @precondition(lambda self: any(len(m.line) > 1 for m in self.model.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        waiting = [one for m in self.model.values() for one in m.line[1:]]
        one = data.draw(st.sampled_from(waiting))
        assert self.table.end(one, self.now) is None
        self.model[one.key].line.remove(one)

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)
        self._forget()

    @invariant()
    def sums_are_right(self) -> None:
        self.table.check()
        begun = {key for key, m in self.model.items() if m.value is not None}
        assert all(self.table.has_begun(key) for key in begun)
        assert self.table.size <= 3 * _COST

    def _begin(self, one: Turn) -> None:
        known = self.model[one.key]
        try:
            seen = float(self.table.begin(one, self.now)["s"][0])
        except FailedPreconditionError:
            assert known.value is None
            assert not one.part.starts
            self._over(one)
        except ResourceExhaustedError:
            assert known.value is None
            assert one.part.starts
            self._over(one)
        else:
            assert seen == (0.0 if one.part.starts else known.value)
            self.running[one.key] = seen

    def _over(self, one: Turn) -> None:
        known = self.model[one.key]
        assert known.line.pop(0) is one
        known.last = self.now
        following = self.table.end(one, self.now)
        assert following is (known.line[0] if known.line else None)
        if following is not None:
            self._begin(following)

    def _forget(self) -> None:
        for key, known in list(self.model.items()):
            if not known.line and (known.value is None or known.last + 60.0 <= self.now):
                del self.model[key]


TestAnyInterleaving = AnyInterleaving.TestCase


@given(st.text(max_size=20))
def test_ids_of_any_text_are_told_safely(text: str) -> None:
    """The message shows the id quoted and cut."""
    table = sequences()
    one = Turn(("", text), SequencePart(text), 0)
    assert table.arrive(one, 0.0)
    with pytest.raises(FailedPreconditionError) as caught:
        table.begin(one, 0.0)
    assert repr(text)[:40] in caught.value.message
