"""Which requests of unlike lengths share a run."""

from collections.abc import Sequence
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.assignment import PaddedInput, RunSettings
from services.worker.domain.batch import BatchQueue, Taken, Waiting
from services.worker.domain.company import Choice, choose
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import Signature, spec_of
from tests.unit.worker.domain.queue_requests import drained, queue, request

SIGNATURE = Signature((spec_of("ids", "INT64", (-1, -1)),), ())
PADDING = Padding.of(SIGNATURE, RunSettings(padded_inputs=(PaddedInput("ids", 1),)))
assert PADDING is not None


def of_length(length: int, rows: int = 1) -> Waiting:
    return request(rows, lengths=(length,), area=length)


def lengths(batch: Sequence[Waiting]) -> list[int]:
    return [r.terms.area for r in batch]


def chosen(first: int, others: Sequence[int], choice: Choice) -> list[int]:
    return lengths(choose(of_length(first), [of_length(o) for o in others], choice))


def cost(parts: Sequence[Sequence[int]], per_run: float) -> float:
    """Of all runs."""
    return sum(per_run + len(part) * max(part) for part in parts)


def test_the_nearest_lengths_go_with_the_first() -> None:
    """However many others came before them."""
    assert sorted(chosen(20, [90, 80, 21, 70, 19, 22], Choice(4, 1, 8.0))) == [19, 20, 21, 22]


def test_padding_may_cost_no_more_than_a_run_of_its_own() -> None:
    """A run costs as much as ten cells: eight of padding are taken, eleven are not."""
    assert chosen(20, [12, 40], Choice(8, 1, 10.0)) == [20, 12]
    assert chosen(20, [9, 40], Choice(8, 1, 10.0)) == [20]


def test_a_request_with_nearer_company_is_left_to_it() -> None:
    """Twelve go with twenty if nobody else is there, but not if others of their length wait."""
    assert chosen(20, [12, 12, 12, 12], Choice(8, 1, 10.0)) == [20]


def test_before_costs_are_known_little_is_padded() -> None:
    """A run is taken to cost a quarter of the first request."""
    assert chosen(20, [18, 10, 40], Choice(8, 1, None)) == [20, 18]


def test_a_batch_that_pays_no_more_by_growing_ends() -> None:
    """Where runs cost little, few requests share one, and the next instance finds work."""
    assert len(chosen(20, [20] * 31, Choice(32, 1, 5.0))) == 8


def test_what_waits_is_shared_out_between_idle_instances() -> None:
    """Two are idle: half of it each."""
    assert len(chosen(20, [20] * 7, Choice(32, 2, 10.0))) == 4


def test_rows_are_bounded() -> None:
    """Never more than max_rows, except for a request that is larger by itself."""
    others = [of_length(20, rows=3), of_length(20, rows=2)]
    assert sum(r.rows for r in choose(of_length(20, rows=2), others, Choice(4, 1, 9.0))) <= 4
    assert len(choose(of_length(20, rows=9), others, Choice(4, 1, 9.0))) == 1


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(0, 40))
def test_what_waits_is_parted_at_least_cost(given_lengths: list[int], per_run: int) -> None:
    """No way to part it by length costs less; the part of the first is one of the best way's."""
    bounds = Choice(4, 1, float(per_run))
    part = chosen(given_lengths[0], given_lengths[1:], bounds)
    rest = list(given_lengths)
    for length in part:
        rest.remove(length)
    best = least_cost(tuple(sorted(given_lengths)), per_run)
    assert cost([part], per_run) + least_cost(tuple(sorted(rest)), per_run) == best


@cache
def least_cost(ordered: tuple[int, ...], per_run: int) -> float:
    """By trying all."""
    if not ordered:
        return 0.0
    return min(
        least_cost(ordered[:-size], per_run) + cost([ordered[-size:]], per_run)
        for size in range(1, min(4, len(ordered)) + 1)
    )


def ragged(**limits: int) -> BatchQueue:
    return queue(PADDING, **{"max_rows": 8, "max_queued_rows": 1000, **limits})


def test_costs_are_learned_from_runs() -> None:
    """A run that takes 1 ms and 0.1 ms for each cell costs ten cells."""
    q = ragged()
    for cells in (8, 16, 24, 32, 40, 48, 64, 80):
        q.note_run(Taken([], [], 1), 0.5, 0.0, (cells, 1e-3 + 1e-4 * cells))
    for length in (20, 10, 31):
        q.admit(of_length(length))
    assert [lengths(batch) for batch in drained(q)] == [[20, 10], [31]]


@given(st.lists(st.integers(1, 128), min_size=1, max_size=80))
def test_nobody_starves_and_batches_keep_their_bounds(given_lengths: list[int]) -> None:
    """Each batch has the one who waits longest; padding stays below what was allowed; everyone leaves once."""
    q = ragged()
    waiting = [of_length(length) for length in given_lengths]
    for r in waiting:
        q.admit(r)
    batches = drained(q)
    assert sorted(r.number for batch in batches for r in batch) == list(range(1, len(waiting) + 1))
    for batch in batches:
        first = next(r for r in waiting if r in batch)
        assert first is waiting[0] or first is batch[0]
        waiting = [r for r in waiting if r not in batch]
        assert len(batch) <= 8
        longest = max(lengths(batch))
        assert longest - min(lengths(batch)) <= 0.25 * batch[0].terms.area
