"""Whatever the order, repeats, retries, restarts and prices: each request counts once, and every sum is exact."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from services.metering.domain.money import parse_amount
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Kind, Outcome
from tests.contract.metering.ledger_world import CHARGED, new_ledger, opened
from tests.metering_usage import PROJECT, START_NS, Told, batch_of

HOUR_NS = 3600 * 10**9
SUBJECTS = [
    PROJECT,
    replace(PROJECT, key="k2"),
    replace(PROJECT, project="other", key="k3", endpoint="search"),
    replace(PROJECT, model="mini", version="2"),
]
QUANTITIES = ("input_tokens", "output_tokens", "rows", "compute_ns", "cached_tokens")


@dataclass(frozen=True)
class Rate:
    """A price as the model knows it."""

    unit: Unit
    amount: str
    project: str = ""
    model: str = ""
    begins_ns: int = 0


@dataclass
class Kept:
    """A row with the prices there were when it came."""

    told: Told
    rates: tuple[Rate, ...]


@dataclass
class Story:
    """What workers report, batch by batch, and what else happens."""

    batches: list[tuple[str, list[Told]]]  # source, rows
    repeats: list[int]  # after each batch, so many of its source's last rows come again
    rates: dict[int, Rate] = field(default_factory=dict)  # before which batch
    restarts: set[int] = field(default_factory=set)


@st.composite
def requests(draw: st.DrawFn, number: int) -> list[Told]:
    """All attempts of one request."""
    kind = draw(st.sampled_from([Kind.REQUEST, Kind.REQUEST, Kind.BATCH, Kind.SHADOW]))
    start = START_NS + draw(st.integers(0, 3 * HOUR_NS))
    attempts = []
    for attempt in range(1, draw(st.integers(1, 3)) + 1):
        start += draw(st.integers(0, 10**9))
        numbers = {name: draw(st.integers(0, 1000)) for name in QUANTITIES}
        numbers["compute_ns"] *= 1237
        attempts.append(
            Told(
                request=number,
                subject=replace(draw(st.sampled_from(SUBJECTS)), kind=kind),
                outcome=draw(st.sampled_from(Outcome)),
                attempt=attempt,
                start_ns=start,
                duration_ns=draw(st.integers(0, 10**9)),
                numbers=numbers,
            )
        )
    # Envoy tells the first attempt's number only of those that reached a worker.
    return attempts if draw(st.booleans()) else attempts[-1:]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    rows = [told for number in range(draw(st.integers(1, 12))) for told in draw(requests(number))]
    rows = draw(st.permutations(rows))
    batches: list[tuple[str, list[Told]]] = []
    while rows:
        size = draw(st.integers(1, 6))
        batches.append((draw(st.sampled_from(["a", "b", "c"])), list(rows[:size])))
        rows = rows[size:]
    rate = st.builds(
        Rate,
        unit=st.sampled_from(Unit),
        amount=st.sampled_from(["0.001", "0.000017", "2", "0"]),
        project=st.sampled_from(["", "acme", "other"]),
        model=st.sampled_from(["", "smol"]),
        begins_ns=st.sampled_from([0, START_NS + HOUR_NS, START_NS + 2 * HOUR_NS]),
    )
    return Story(
        batches,
        [draw(st.integers(0, 8)) for _ in batches],
        draw(st.dictionaries(st.integers(0, len(batches) - 1), rate, max_size=3)),
        draw(st.sets(st.integers(0, len(batches) - 1), max_size=2)),
    )


def winner(kept: Sequence[Kept]) -> Kept:
    """The rule in other words: who ended well and first, or else who was tried last."""
    well = [one for one in kept if one.told.outcome is Outcome.OK]
    if well:
        return min(
            well, key=lambda one: (one.told.start_ns + one.told.duration_ns, one.told.attempt)
        )
    return max(kept, key=lambda one: one.told.attempt)


def cost(kept: Kept) -> int:
    """What a request costs, computed price by price."""
    told, total = kept.told, 0
    if told.subject.kind is Kind.SHADOW or told.outcome not in CHARGED:
        return 0
    cached = min(told.numbers["cached_tokens"], told.numbers["input_tokens"])
    quantities = {
        Unit.REQUEST: 1,
        Unit.INPUT_TOKEN: told.numbers["input_tokens"] - cached,
        Unit.CACHED_TOKEN: cached,
        Unit.OUTPUT_TOKEN: told.numbers["output_tokens"],
        Unit.COMPUTE_SECOND: (told.numbers["compute_ns"] + 500) // 1000,
        Unit.ROW: told.numbers["rows"],
    }
    for unit, quantity in quantities.items():
        fitting = [
            (bool(rate.project), bool(rate.model), rate.begins_ns, place)
            for place, rate in enumerate(kept.rates)
            if rate.unit is unit
            and rate.begins_ns <= told.start_ns
            and rate.project in {"", told.subject.project}
            and rate.model in {"", told.subject.model}
        ]
        if fitting:
            amount = parse_amount("amount", kept.rates[max(fitting)[3]].amount)
            total += quantity * amount // unit.counts_per_unit
    return total


async def tell(story: Story, path: Path) -> list[Kept]:
    """Act the story on a ledger; which rows came with which prices."""
    kept: list[Kept] = []
    rates: list[Rate] = []
    known: dict[str, list[Told]] = {}
    place = 0
    while place < len(story.batches):
        async with opened(path) as world:
            while place < len(story.batches):
                if rate := story.rates.get(place):
                    rates.append(rate)
                    await world.price(
                        rate.unit,
                        rate.amount,
                        project=rate.project,
                        model=rate.model,
                        valid_from=datetime.fromtimestamp(rate.begins_ns // 10**9, UTC).isoformat(),
                    )
                source, rows = story.batches[place]
                before = known.setdefault(source, [])
                again = min(story.repeats[place], len(before))
                sent = [*before[len(before) - again :], *rows]
                first = len(before) - again
                recorded = await world.record(batch_of(sent, source=source, first=first))
                before += rows
                assert recorded.next_sequence == len(before)
                assert recorded.rows == len(rows)
                kept += [Kept(row, tuple(rates)) for row in rows]
                place += 1
                if place in story.restarts:
                    break
    return kept


def by_request(kept: Sequence[Kept]) -> list[list[Kept]]:
    found: dict[tuple[int, bool], list[Kept]] = {}
    for one in kept:
        shadow = one.told.subject.kind is Kind.SHADOW
        found.setdefault((one.told.request, shadow), []).append(one)
    return list(found.values())


async def check(story: Story, path: Path) -> None:
    kept = await tell(story, path)
    groups = by_request(kept)
    winners = [winner(group) for group in groups]
    async with opened(path) as world:
        totals = await world.totals()
        assert totals["requests"] == len(groups)
        assert totals["lost_attempts"] == len(kept) - len(groups)
        for name in ("output_tokens", "input_tokens", "rows", "compute_ns"):
            assert totals[name] == sum(one.told.numbers[name] for one in winners), name
        for outcome in Outcome:
            there = sum(one.told.outcome is outcome for one in winners)
            assert totals[outcome.name.lower()] == there, outcome
        charged = sum(cost(one) for one in winners)
        assert totals["charged"] == charged
        balances = await world.ledger.balances("projects/")
        assert sum(balances.values()) == charged
        assert await world.problems() == []
        again = next(iter(story.batches))
        repeated = await world.record(batch_of(again[1], source=again[0]))
        assert repeated.rows == 0


@settings(max_examples=25, deadline=None)
@given(stories())
def test_each_request_counts_once_and_every_sum_is_exact(story: Story) -> None:
    """The ledger of any story is that of a model that knows all rows at once."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(story, new_ledger(Path(folder))))
