"""Who is alive by Consul's word: what removes a worker, what only casts doubt, and for how long."""

from hypothesis import given
from hypothesis import strategies as st
from inferplane.discovery.v1 import worker_pb2

from services.rpc.consul_roster import ConsulRoster
from services.rpc.consul_worker import Entry

LEASE, PATIENCE, DOUBT = 5.0, 2.0, 60.0


def entry(
    name: str,
    *,
    renews: bool = True,
    node: bool = True,
    draining: bool = False,
    sequence: int = 1,
    address: str = "",
    started: int = 0,
) -> Entry:
    worker = worker_pb2.Worker(name=name, draining=draining, address=address or f"{name}:1")
    worker.start_time.seconds = started
    return Entry(worker=worker, sequence=sequence, lease=LEASE, renews=renews, node_is_well=node)


def live(roster: ConsulRoster, now: float) -> list[str]:
    return [worker.name for worker in roster.live(now)]


def heard(*entries: Entry, doubt: float = DOUBT) -> ConsulRoster:
    """Has heard these at 0."""
    roster = ConsulRoster(doubt=doubt)
    roster.hear(entries, 0)
    return roster


def test_the_first_list() -> None:
    """Of the first list those count whose checks pass; who died long ago is in it too."""
    roster = heard(entry("b"), entry("a"), entry("dead", renews=False), entry("away", node=False))
    assert live(roster, 0) == ["a", "b"]
    assert roster.next_change(0) is None


def test_dead_worker_is_gone_within_its_lease() -> None:
    """A failed check takes a worker off after the rest of its lease; hearing it again is no news."""
    roster = heard(entry("a"), entry("b"))
    failed = [entry("a", renews=False), entry("b")]
    roster.hear(failed, 10)
    roster.hear(failed, 11)
    assert roster.next_change(11) == 10 + PATIENCE
    assert live(roster, 10 + PATIENCE - 0.01) == ["a", "b"]
    assert live(roster, 10 + PATIENCE) == ["b"]
    roster.hear([entry("b")], 70)  # Consul has removed it by now
    assert live(roster, 70) == ["b"]


def test_worker_that_renews_late_never_left() -> None:
    """An agent that stood still fails the checks of all at once; with their next beat all is as before."""
    roster = heard(entry("a"), entry("b"))
    roster.hear([entry("a", renews=False), entry("b", renews=False)], 10)
    assert live(roster, 11.9) == ["a", "b"]
    roster.hear([entry("a"), entry("b")], 11.9)
    assert live(roster, 99) == ["a", "b"]


def test_the_only_worker_dies() -> None:
    """A failed check is Consul's word about a worker, though no other is left."""
    roster = heard(entry("a"))
    roster.hear([entry("a", renews=False)], 10)
    roster.hear([], 11)
    assert live(roster, 10 + PATIENCE) == []


def test_worker_that_leaves() -> None:
    """One that said that it drains is gone when its registration is, at once."""
    roster = heard(entry("a"), entry("b"))
    roster.hear([entry("a", draining=True), entry("b")], 10)
    assert live(roster, 10) == ["a", "b"]
    roster.hear([entry("b")], 11)
    assert live(roster, 11) == ["b"]
    roster.hear([entry("b", draining=True)], 12)
    roster.hear([], 13)
    assert live(roster, 13) == []


def test_missing_worker_is_doubted_first() -> None:
    """A registration that vanishes was lost by an agent: the worker has time to be back."""
    roster = heard(entry("a"), entry("b"))
    roster.hear([entry("b")], 10)
    roster.hear([entry("b")], 40)
    assert roster.next_change(40) == 10 + DOUBT
    assert live(roster, 69.9) == ["a", "b"]
    assert live(roster, 70) == ["b"]


def test_empty_list_removes_nobody() -> None:
    """An empty list is no proof, however often it is heard; the first worker in it begins the time of doubt."""
    roster = heard(entry("a"), entry("b"))
    for now in (10, 100, 1000):
        roster.hear([], now)
    assert live(roster, 10_000) == ["a", "b"]
    assert roster.next_change(10_000) is None
    roster.hear([entry("a")], 10_000)
    assert live(roster, 10_000 + DOUBT - 1) == ["a", "b"]
    assert live(roster, 10_000 + DOUBT) == ["a"]


def test_loss_keeps_all_without_end() -> None:
    """While Consul is away nothing ends; who was dead before stays dead."""
    roster = heard(entry("a"), entry("b"), entry("c"))
    roster.hear([entry("a"), entry("b", renews=False), entry("c", renews=False)], 10)
    roster.hear([entry("a"), entry("b", renews=False), entry("c")], 11)
    roster.lose(12.5)
    assert live(roster, 10_000) == ["a", "c"]
    assert roster.next_change(10_000) is None


def test_return_is_no_flap() -> None:
    """After a return who is missing or has not renewed yet is kept for the time of doubt; new ones count at once."""
    roster = heard(entry("a"), entry("b"), entry("c"))
    roster.lose(10)
    roster.hear([entry("a", renews=False), entry("d")], 100)
    assert live(roster, 100) == ["a", "b", "c", "d"]
    roster.hear([entry("a"), entry("d")], 101)
    assert live(roster, 159) == ["a", "b", "c", "d"]
    assert live(roster, 160) == ["a", "d"]


def test_checks_that_fail_soon_after_a_return() -> None:
    """Within the time of doubt a failed check is no proof either: servers hear late of renewals."""
    roster = heard(entry("a"), entry("b"))
    roster.lose(10)
    roster.hear([entry("a"), entry("b")], 100)
    roster.hear([entry("a", renews=False), entry("b")], 105)
    assert live(roster, 159) == ["a", "b"]
    assert live(roster, 160) == ["b"]


def test_agent_down_is_not_worker_down() -> None:
    """A node that is away takes its worker off only after the time of doubt; another agent's word ends it."""
    roster = heard(entry("a"), entry("b"))
    roster.hear([entry("a", node=False), entry("b")], 10)
    assert live(roster, 69) == ["a", "b"]
    moved = entry("a", sequence=1, address="a:2")
    roster.hear([entry("a", node=False), moved, entry("b")], 20)
    assert roster.next_change(20) is None
    assert live(roster, 100) == ["a", "b"]
    assert roster.live(100)[0].address == "a:2"


def test_newest_of_two_agents() -> None:
    """A worker that moved to another agent is known by what it said last."""
    old, new = entry("a", sequence=1), entry("a", sequence=2, draining=True)
    for entries in ([old, new], [new, old]):
        assert heard(*entries).live(0)[0].draining
    assert not heard(old, entry("a", sequence=3, renews=False)).live(0)[0].draining


def test_started_again_at_the_address_of_the_dead() -> None:
    """Who is only kept goes when another lives at its address; of two that live there the younger counts."""
    roster = heard(entry("old", address="h:1"), entry("b"))
    roster.lose(10)
    roster.hear([entry("new", address="h:1"), entry("b")], 100)
    assert live(roster, 100) == ["b", "new"]
    old, new = entry("z", address="h:1", started=1), entry("a", address="h:1", started=2)
    assert live(heard(old, new), 0) == live(heard(new, old), 0) == ["a"]
    roster.hear(
        [entry("new", address="h:1"), entry("b"), entry("newer", address="h:1", started=3)], 101
    )
    assert live(roster, 101) == ["b", "newer"]


@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.none(),  # lose
                st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans())),
            ),
            st.floats(min_value=0, max_value=100),
        )
    )
)
def test_who_passes_is_alive(
    story: list[tuple[list[tuple[str, bool, bool]] | None, float]],
) -> None:
    """Whatever comes: who passes by the newest list is alive, and a moment to look again lies ahead."""
    roster, now = ConsulRoster(doubt=DOUBT), 0.0
    for said, seconds in story:
        now += seconds
        if said is None:
            before = live(roster, now)
            roster.lose(now)
            assert live(roster, now + 1000) == before or not roster.was_heard
            continue
        entries = [entry(name, renews=renews, node=node) for name, renews, node in said]
        roster.hear(entries, now)
        assert {e.worker.name for e in entries if e.renews and e.node_is_well} <= set(
            live(roster, now)
        )
        ahead = roster.next_change(now)
        assert ahead is None or ahead > now
