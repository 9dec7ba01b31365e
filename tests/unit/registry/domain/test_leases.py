"""The lease table."""

from dataclasses import replace
from datetime import UTC, datetime

from services.registry.domain.leases import LeaseTable
from services.registry.domain.worker import LoadState
from services.rpc.names import WorkerName
from tests.unit.registry.records import worker


def names(table: LeaseTable, now: float) -> list[str]:
    return [lease.worker.name.worker for lease in table.live(now)]


def test_a_lease_ends_exactly_at_its_deadline() -> None:
    """Alive until the deadline, gone at it."""
    table = LeaseTable()
    assert table.renew(worker("a"), ttl=5, now=10)
    assert table.next_deadline() == 15
    assert table.expire(14.999) == ()
    assert names(table, 14.999) == ["a"]
    assert names(table, 15) == []
    assert [gone.name.worker for gone in table.expire(15)] == ["a"]
    assert table.next_deadline() is None
    assert len(table) == 0


def test_renewals_move_the_deadline() -> None:
    """A renewed lease outlives its first deadline; others don't wait for it."""
    table = LeaseTable()
    table.renew(worker("a"), ttl=5, now=0)
    table.renew(worker("b"), ttl=3, now=0)
    table.renew(worker("a"), ttl=5, now=4)
    assert table.next_deadline() == 3
    assert [gone.name.worker for gone in table.expire(8)] == ["b"]
    assert names(table, 8) == ["a"]


def test_a_shorter_ttl_counts() -> None:
    """The newest renewal decides, also if it ends earlier."""
    table = LeaseTable()
    table.renew(worker("a"), ttl=60, now=0)
    table.renew(worker("a"), ttl=1, now=1)
    assert table.next_deadline() == 2


def test_only_what_routing_needs_is_news() -> None:
    """Counters and renewals are no news; address, states and draining are."""
    table = LeaseTable()
    ready, loading = {"m@1": LoadState.READY}, {"m@1": LoadState.LOADING}
    steps = [
        (worker("a", states=loading), True),
        (worker("a", states=loading), False),
        (worker("a", states=loading, in_flight=7), False),
        (worker("a", states=ready), True),
        (worker("a", states=ready, draining=True), True),
        (worker("a", "other", ready, draining=True), True),
        (worker("a", "other", ready, draining=True), False),
    ]
    for number, (reported, news) in enumerate(steps):
        assert table.renew(reported, ttl=5, now=0) is news, number


def test_ending_is_idempotent() -> None:
    """A lease ends at once; ending it again is no news."""
    table = LeaseTable()
    table.renew(worker("a"), ttl=5, now=0)
    assert table.end(WorkerName("a"))
    assert not table.end(WorkerName("a"))


def test_live_workers_are_in_order() -> None:
    """Ordered by name, however they came."""
    table = LeaseTable()
    for name in ("c", "a", "b"):
        table.renew(worker(name), ttl=5, now=0)
    assert names(table, 1) == ["a", "b", "c"]


def test_an_address_is_one_process() -> None:
    """Of two at one address the one that started last is live; the other is again when that one goes."""
    table = LeaseTable()
    old, new = (
        replace(
            worker(name), address="10.0.0.1:8085", start_time=datetime(2026, 1, day, tzinfo=UTC)
        )
        for name, day in (("z", 1), ("a", 2))
    )
    table.renew(old, ttl=5, now=0)
    table.renew(worker("b"), ttl=5, now=0)
    table.renew(new, ttl=5, now=1)
    assert names(table, 2) == ["a", "b"]
    table.renew(old, ttl=5, now=2)
    assert names(table, 2) == ["a", "b"]
    assert table.end(new.name)
    assert names(table, 3) == ["b", "z"]
