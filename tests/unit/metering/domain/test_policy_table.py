"""The table of facts: what holds when, and what readers are told."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.metering.domain.api_key import ApiKey, KeyIssue, KeyState, revoked, rotated
from services.metering.domain.limits import Limits
from services.metering.domain.policy import (
    CLOCK_SKEW,
    Fact,
    FactKey,
    FactKind,
    Revocation,
    Span,
    key_spans,
    project_spans,
    signing_span,
)
from services.metering.domain.policy_table import PolicyChange, PolicyTable, first_revision
from services.metering.domain.signing_key import retired
from services.rpc.errors import OutOfRangeError
from services.rpc.names import KeyName
from tests.unit.metering.identities import DAY, NOW, SLOW, key, project, signing

FIRST = 100
KEY = "projects/p/keys/a"
REVOKED = (FactKind.REVOCATION, KEY)
LIMITED = (FactKind.LIMITS, KEY)


def held(table: PolicyTable) -> dict[FactKey, Fact | None]:
    return {change.key: change.fact for change in table.snapshot()}


def follower(changes: Sequence[PolicyChange], facts: dict[FactKey, Fact]) -> dict[FactKey, Fact]:
    """What a reader holds after some changes."""
    known = dict(facts)
    for change in changes:
        if change.fact is None:
            known.pop(change.key, None)
        else:
            known[change.key] = change.fact
    return known


def test_a_plain_key_is_no_fact() -> None:
    """However many there are, the edge holds nothing of those that just run."""
    table = PolicyTable(FIRST)
    assert not table.put(key_spans(key()), NOW)
    assert (len(table), table.planned, table.revision) == (0, 0, FIRST)


def test_a_revocation_outlasts_the_token_by_the_clocks_leeway() -> None:
    """A verifier takes a token for some time after its end; the revocation is still there then."""
    table = PolicyTable(FIRST)
    table.put(key_spans(revoked(key(), NOW)), NOW)
    end = key().expire_time
    assert held(table) == {REVOKED: Revocation(end)}
    assert not table.advance(end + CLOCK_SKEW - timedelta(microseconds=1))
    assert table.advance(end + CLOCK_SKEW)
    assert (held(table), table.planned) == ({}, 0)


def test_an_overlap_ends_by_the_clock() -> None:
    """The revocation is due at the moment itself, and changes nothing else."""
    table = PolicyTable(FIRST)
    ended, _ = rotated(key(limits=SLOW), KeyIssue(KeyName("p", "b"), "k1", NOW, DAY), DAY)
    table.put(key_spans(ended), NOW)
    assert held(table) == {LIMITED: SLOW}
    assert table.next_change() == NOW + DAY
    before = table.revision
    assert table.advance(NOW + DAY)
    assert [change.key for change in table.changes(before)] == [REVOKED]
    assert held(table) == {REVOKED: Revocation(ended.expire_time), LIMITED: SLOW}


@pytest.mark.parametrize("is_revoked", [False, True])
def test_limits_end_with_their_key(is_revoked: bool) -> None:
    """Nothing is kept of what is over; until then a revocation leaves limits as they are."""
    table = PolicyTable(FIRST)
    limited = key(limits=SLOW)
    table.put(key_spans(limited), NOW)
    if is_revoked:
        before = table.revision
        table.put(key_spans(revoked(limited, NOW)), NOW)
        assert [change.key for change in table.changes(before)] == [REVOKED]
    assert table.advance(key().expire_time + CLOCK_SKEW)
    assert (len(table), table.planned, table.next_change()) == (0, 0, None)


def test_projects_and_signing_keys() -> None:
    """A disabled project is revoked without end; a retired signing key goes at its time."""
    table = PolicyTable(FIRST)
    table.put(project_spans(project(disabled=True, limits=SLOW)), NOW)
    table.put([signing_span(signing(retire_time=NOW + DAY))], NOW)
    assert held(table)[(FactKind.REVOCATION, "projects/p")] == Revocation(None)
    assert [change.key[0] for change in table.snapshot()] == [
        FactKind.SIGNING_KEY,
        FactKind.REVOCATION,
        FactKind.LIMITS,
    ]
    table.advance(NOW + DAY)
    table.put(project_spans(project()), NOW + DAY)
    assert held(table) == {}


def test_what_says_the_same_is_no_news() -> None:
    """The revision counts changes, not writes."""
    table = PolicyTable(FIRST)
    assert table.put(project_spans(project(limits=SLOW)), NOW)
    assert not table.put(project_spans(project(limits=SLOW, display_name="x")), NOW)
    assert table.revision == FIRST + 1


def test_changes_come_once_each_in_order() -> None:
    """Who missed three changes of a fact hears of the last."""
    table = PolicyTable(FIRST)
    for rate in (1.0, 2.0, 3.0):
        table.put(project_spans(project("a", limits=Limits(requests_per_second=rate))), NOW)
    table.put(project_spans(project("b", limits=SLOW)), NOW)
    table.put(project_spans(project("a")), NOW)
    a, b = ((FactKind.LIMITS, f"projects/{name}") for name in "ab")
    assert table.changes(FIRST) == [PolicyChange(b, SLOW), PolicyChange(a, None)]
    assert table.changes(table.revision - 1) == [PolicyChange(a, None)]
    assert table.changes(table.revision) == []


@pytest.mark.parametrize("after", [FIRST - 1, FIRST + 2, 1])
def test_revisions_of_others_are_refused(after: int) -> None:
    """Those of an earlier process lie before, those of a process with another clock after."""
    table = PolicyTable(FIRST)
    table.put(project_spans(project(limits=SLOW)), NOW)
    with pytest.raises(OutOfRangeError) as caught:
        table.changes(after)
    assert caught.value.reason == "REVISION_UNAVAILABLE"


def test_only_so_many_removals_are_remembered() -> None:
    """A reader behind the first forgotten one begins again; one after it doesn't."""
    table = PolicyTable(FIRST, kept_removals=10)
    for number in range(100):
        table.put(project_spans(project(f"p{number}", limits=SLOW)), NOW)
    for number in range(100):
        table.put(project_spans(project(f"p{number}")), NOW)
    assert (len(table), len(table.changes(table.revision - 10))) == (0, 10)
    with pytest.raises(OutOfRangeError):
        table.changes(FIRST)


def test_plans_of_a_key_that_changes_often_do_not_pile_up() -> None:
    """Stale ones are cleared."""
    table = PolicyTable(FIRST)
    for number in range(1000):
        limits = Limits(requests_per_second=1.0 + number)
        table.put(key_spans(key(limits=limits)), NOW)
    assert table.planned == 1
    assert len(table._due) < 100


def test_clearing_plans_loses_none_whose_time_has_come() -> None:
    """A revocation that is due, and not applied yet, is still applied once others' stale plans were cleared."""
    table = PolicyTable(FIRST)
    ended, _ = rotated(key(), KeyIssue(KeyName("p", "b"), "k1", NOW, DAY), timedelta(seconds=1))
    table.put(key_spans(ended), NOW)
    later = NOW + timedelta(seconds=2)
    for number in range(100):
        other = Span(
            (FactKind.LIMITS, "projects/q"), SLOW, later + timedelta(seconds=1 + number), None
        )
        table.put([other], later)
    assert table.advance(later)
    assert held(table) == {REVOKED: Revocation(ended.expire_time)}


def test_plans_for_the_same_moment_are_cleared_too() -> None:
    """Limits of a revoked key end with its revocation."""
    table = PolicyTable(FIRST)
    ended = revoked(key(limits=SLOW), NOW)
    for _ in range(100):
        table.put(key_spans(ended), NOW)
    assert len(table._due) < 100
    assert held(table) == {REVOKED: Revocation(ended.expire_time), LIMITED: SLOW}
    assert table.advance(ended.expire_time + CLOCK_SKEW)
    assert held(table) == {}


_MOMENT = st.integers(0, 40).map(lambda hours: NOW + timedelta(hours=hours))
_OPTIONAL = st.none() | _MOMENT
_SPANS = st.builds(
    Span,
    st.sampled_from([(FactKind.LIMITS, name) for name in "abc"]),
    st.none() | st.just(SLOW),
    _OPTIONAL,
    _OPTIONAL,
)
_STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | _SPANS), max_size=40)


@given(_STEPS, st.integers(0, 39))
@settings(max_examples=200)
def test_what_holds_is_what_the_spans_say(
    steps: list[tuple[int, Span | None]], joined: int
) -> None:
    """Whatever is put when: the table, and a reader who joins at any time and resumes, hold just that."""
    table, now = PolicyTable(FIRST), NOW
    said: dict[FactKey, Span] = {}
    facts: dict[FactKey, Fact] = {}
    seen = 0
    for number, (hours, span) in enumerate(steps):
        now += timedelta(hours=hours)
        table.advance(now)
        if span is not None:
            table.put([span], now)
            said[span.key] = span
        wanted = {key: fact for key, s in said.items() if (fact := s.at(now)) is not None}
        assert held(table) == wanted
        if number >= joined:
            news = table.changes(seen) if seen else table.snapshot()
            facts, seen = follower(news, facts), table.revision
            assert facts == wanted
        due = table.next_change()
        assert due is None or due > now


class Edge:
    """What lets in at the edge: it knows the policy and reads tokens."""

    def __init__(self, facts: dict[FactKey, Fact | None]) -> None:
        self._facts = facts

    def lets_in(self, token_of: ApiKey, now: datetime) -> bool:
        return (
            (FactKind.SIGNING_KEY, token_of.kid) in self._facts
            and now < token_of.expire_time
            and (FactKind.REVOCATION, str(token_of.name)) not in self._facts
            and (FactKind.REVOCATION, str(token_of.name.parent)) not in self._facts
        )


class World:
    """Records and the table, changed together as the use cases do."""

    def __init__(self) -> None:
        self.now = NOW
        self.table = PolicyTable(FIRST)
        self.projects = {name: project(name) for name in "pq"}
        self.keys: list[ApiKey] = []
        self.signing = [signing("k0")]
        self.table.put([signing_span(self.signing[0])], NOW)

    def make(self, name: str, days: int) -> None:
        made = key(
            f"j{len(self.keys)}",
            name,
            kid=self.signing[-1].kid,
            create_time=self.now,
            expire_time=self.now + days * DAY,
        )
        self._put(len(self.keys), made)

    def rotate(self, index: int, days: int) -> None:
        old = self.keys[index]
        if old.state(self.now) is KeyState.LIVE:
            name = KeyName(old.name.project, f"j{len(self.keys)}")
            issue = KeyIssue(name, self.signing[-1].kid, self.now, 9 * DAY)
            ended, successor = rotated(old, issue, days * DAY)
            self._put(len(self.keys), successor)
            self._put(index, ended)

    def revoke(self, index: int, days: int) -> None:
        self._put(index, revoked(self.keys[index], self.now))

    def _put(self, index: int, record: ApiKey) -> None:
        self.keys[index : index + 1] = [record]
        self.table.put(key_spans(record), self.now)

    def rotate_signing(self, days: int) -> None:
        changed = {k.kid: k for k in retired(self.signing, self.now, days * DAY)}
        self.signing = [changed.get(k.kid, k) for k in self.signing]
        self.signing.append(signing(f"k{len(self.signing)}", create_time=self.now))
        self.table.put([signing_span(k) for k in self.signing], self.now)

    def switch(self, name: str) -> None:
        old = self.projects[name]
        self.projects[name] = project(name, disabled=not old.disabled)
        self.table.put(project_spans(self.projects[name]), self.now)

    def pass_time(self, days: int) -> None:
        self.now += days * DAY / 2
        self.table.advance(self.now)

    def may(self, record: ApiKey) -> bool:
        """The rule in words: not expired, not revoked, signed by a key that verifies, of a project that is on."""
        (signed_by,) = [k for k in self.signing if k.kid == record.kid]
        return (
            record.state(self.now) in (KeyState.LIVE, KeyState.ROTATED)
            and signed_by.verifies(self.now)
            and not self.projects[record.name.project].disabled
        )


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["make", "rotate", "revoke", "rotate_signing", "switch", "pass_time"]),
        st.integers(0, 20),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(_ACTIONS)
@settings(max_examples=200)
def test_a_key_is_let_in_exactly_if_it_may(actions: list[tuple[str, int, int]]) -> None:
    """Whatever is made, rotated, revoked, retired and disabled in whatever order, and however time passes."""
    world = World()
    for action, index, days in actions:
        match action:
            case "make":
                world.make("pq"[index % 2], days)
            case "rotate" | "revoke" if world.keys:
                getattr(world, action)(index % len(world.keys), days)
            case "rotate_signing":
                world.rotate_signing(days)
            case "switch":
                world.switch("pq"[index % 2])
            case "pass_time":
                world.pass_time(days)
        edge = Edge(held(world.table))
        for record in world.keys:
            assert edge.lets_in(record, world.now) == world.may(record), record


def test_revisions_of_processes_that_share_a_store_are_others() -> None:
    """Of those that start at one moment, and of those that ran before on the same or no shared store."""
    now = 1_796_000_000 * 10**6
    firsts = [first_revision(now, process) for process in range(1000, 1256)]
    assert len(set(firsts)) == 256
    assert (
        min(
            abs(one - other) for one, other in zip(sorted(firsts), sorted(firsts)[1:], strict=False)
        )
        >= 2**24
    )
    assert first_revision(now + 10**6, 7) > max(firsts)
    assert min(firsts) > first_revision(now, None) == now
    assert first_revision(now * 2, 255) < 2**63
