"""Turns of tenants, and priorities before them."""

from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.batch import BatchQueue, Waiting
from tests.unit.worker.domain.queue_requests import admitted, drained, queue, request


def flood(q: BatchQueue, tenant: str, count: int, rows: int = 1) -> list[Waiting]:
    return admitted(q, *(request(rows, tenant=tenant) for _ in range(count)))


def test_a_tenant_that_floods_does_not_delay_another() -> None:
    """Whoever comes first after 50 requests of another is in the next batch."""
    q = queue()
    flood(q, "many", 50)
    q.take(0.0)
    (one,) = flood(q, "one", 1)
    assert one in q.take(0.0).batch


def test_two_floods_share_each_batch() -> None:
    """The second comes later, and yet has its turn at once and half of what follows."""
    q = queue()
    flood(q, "a", 30)
    q.take(0.0)
    flood(q, "b", 30)
    firsts = [request.terms.tenant for batch in drained(q)[:6] for request in batch]
    assert 10 <= firsts.count("b") <= 14


def test_turns_are_counted_in_rows() -> None:
    """Requests of four rows and of one row: each tenant gets as many rows."""
    q = queue(max_queued_rows=1000)
    flood(q, "large", 30, rows=4)
    flood(q, "small", 120)
    rows = {"large": 0, "small": 0}
    for batch in drained(q)[:20]:
        for taken in batch:
            rows[taken.terms.tenant] += taken.rows
    assert abs(rows["large"] - rows["small"]) <= 8


def test_groups_share_by_tenant_too() -> None:
    """A flood of one shape does not hold up another tenant's other shape."""
    q = queue()
    flood(q, "many", 50)
    q.take(0.0)
    other = request(tenant="one", group="h")
    admitted(q, other)
    batches = drained(q)[:2]
    assert any(other in batch for batch in batches)


def test_what_was_cancelled_is_not_held_against_a_tenant() -> None:
    """Its next request is not behind the places of those that were never computed."""
    q = queue()
    for gone in flood(q, "fickle", 40):
        q.leave(gone)
    flood(q, "other", 20)
    (again,) = flood(q, "fickle", 1)
    assert again in q.take(0.0).batch


def test_a_higher_priority_goes_first_and_a_lower_fills_up() -> None:
    """The batch begins with the first level; rows that are left go to those behind of the same group."""
    q = queue(levels=3)
    low = admitted(q, *(request(level=2) for _ in range(4)))
    high = admitted(q, request(level=0), request(level=1))
    assert q.take(0.0).batch == [*high, *low[:2]]


def test_priorities_do_not_mix_groups() -> None:
    """What fills up must be able to share the run."""
    q = queue(levels=2)
    (other,) = admitted(q, request(level=1, group="h"))
    (high,) = admitted(q, request(level=0))
    assert drained(q) == [[high], [other]]


def test_lines_of_shapes_that_are_gone_are_cleared() -> None:
    """Shapes and tenants come from callers: a million of them leave nothing behind."""
    q = queue()
    for number in range(2000):
        admitted_one = request(group=number, tenant=f"t{number}")
        q.admit(admitted_one)
        q.take(0.0)
    q.check()
    level = q._levels[0]
    assert max(len(level.groups), len(level.shares), len(level._heads)) < 100


def test_a_line_forgets_those_who_left_from_its_middle() -> None:
    """One who stays at the front does not keep those behind it alive."""
    q = queue(levels=2, max_queued_rows=10_000)
    admitted(q, request(level=0))
    for _ in range(500):
        (gone,) = admitted(q, request(level=1))
        q.leave(gone)
    line = next(iter(q._levels[1]._lines.values()))
    assert len(line.requests) < 100
    assert len(q) == 1


_ARRIVALS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from("abc"), st.integers(0, 1)),
    min_size=1,
    max_size=60,
)


@given(_ARRIVALS)
def test_order_of_arrival_within_priority_and_tenant(arrivals: list[tuple[int, str, int]]) -> None:
    """Among requests of one row nobody overtakes another of the same tenant and priority."""
    q = queue(levels=2, max_queued_rows=1000)
    everyone = [request(tenant=tenant, level=level) for _, tenant, level in arrivals]
    admitted(q, *everyone)
    order = [r for batch in drained(q) for r in batch]
    for tenant in "abc":
        for level in (0, 1):
            mine = [r for r in everyone if (r.terms.tenant, r.terms.level) == (tenant, level)]
            assert [r for r in order if r in mine] == mine


@given(_ARRIVALS, st.integers(1, 4))
def test_a_newcomer_waits_for_no_more_than_a_turn_of_each(
    arrivals: list[tuple[int, str, int]], own_rows: int
) -> None:
    """However much others have in the queue, a tenant without any is computed after at most one request of each."""
    q = queue(max_queued_rows=1000)
    admitted(q, *(request(rows, tenant=tenant) for rows, tenant, _ in arrivals))
    q.take(0.0)
    new = request(own_rows, tenant="new")
    admitted(q, new)
    before = 0
    for batch in drained(q):
        if new in batch:
            break
        before += sum(r.rows for r in batch)
    tenants = len({tenant for _, tenant, _ in arrivals})
    assert before <= tenants * (4 + 3)  # a request of each, and what filled up their batches
