"""Usage is stored once, the ledger is only appended to, and old rows leave without a trace in the sums."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event

from services.metering.adapters.database import Database
from services.metering.adapters.sql_usage import SqlUsage
from services.metering.domain.charge import Tariff
from services.metering.domain.money import ONE
from services.metering.domain.price import PriceBook
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Kind, Outcome
from services.metering.drivers.ledger import Change, Ledger
from services.metering.drivers.retention import Retention
from services.rpc.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
)
from services.rpc.names import ProjectName
from services.rpc.postgres import Target
from services.rpc.sqlite import open_engine
from tests.contract.metering.ledger_world import CHARGED, KNOWN, LedgerWorld, new_ledger, opened
from tests.manual_clock import ManualClock
from tests.metering_usage import PROJECT, START_NS, Told, batch_of, request_id

ACME = ProjectName("acme")
WORDS = {"input_tokens": 10, "output_tokens": 4}


@pytest.fixture
async def world(ledger: Path | Target) -> AsyncIterator[LedgerWorld]:
    async with opened(ledger) as world:
        await world.price(Unit.OUTPUT_TOKEN, "0.5")
        yield world


def change(amount: str, **words: str) -> Change:
    return Change(
        project=ACME,
        amount=amount,
        reason=words.get("reason", "because"),
        request_id=words.get("request_id", ""),
        corrects=words.get("corrects", ""),
    )


async def test_a_gap_is_refused(world: LedgerWorld) -> None:
    """Rows that come too early are refused, with the number that is wanted."""
    await world.record(batch_of([Told(request=1)]))
    with pytest.raises(FailedPreconditionError) as caught:
        await world.record(batch_of([Told(request=3)], first=2))
    assert caught.value.reason == "USAGE_GAP"
    assert caught.value.metadata["next"] == "1"
    assert (await world.totals())["requests"] == 1


async def test_rows_that_are_known_are_not_counted_again(world: LedgerWorld) -> None:
    """A batch that overlaps what came before adds what is new in it."""
    rows = [Told(request=number, numbers=WORDS) for number in range(5)]
    await world.record(batch_of(rows[:3]))
    recorded = await world.record(batch_of(rows[1:], first=1))
    assert (recorded.next_sequence, recorded.rows) == (5, 2)
    assert (await world.totals())["output_tokens"] == 20
    assert await world.problems() == []


async def test_a_late_attempt_makes_no_second_request(world: LedgerWorld) -> None:
    """A failed attempt that is told of after the retry that went well changes no request and no charge."""
    well = Told(request=1, attempt=2, start_ns=START_NS + 10, numbers=WORDS)
    failed = Told(request=1, attempt=1, outcome=Outcome.ABORTED, numbers={"output_tokens": 9})
    await world.record(batch_of([well], source="b"))
    await world.record(batch_of([failed], source="a"))
    totals = await world.totals()
    assert (totals["requests"], totals["ok"], totals["lost_attempts"]) == (1, 1, 1)
    assert totals["charged"] == 2 * ONE
    found = await world.reports.request(request_id(1))
    assert (list(found.attempts), list(found.workers)) == ([2], ["w1"])
    assert await world.problems() == []


async def test_a_plain_first_attempt_is_found_by_its_retry(world: LedgerWorld) -> None:
    """A worker answered, but its connection broke and Envoy tried again: the first answer counts, once."""
    await world.record(batch_of([Told(request=n, numbers=WORDS) for n in range(50)]))
    again = Told(request=7, attempt=2, start_ns=START_NS + 60 * 10**9, numbers=WORDS)
    recorded = await world.record(batch_of([again], source="b"))
    assert recorded.lost == 1
    totals = await world.totals()
    assert (totals["requests"], totals["output_tokens"]) == (50, 200)
    assert (await world.reports.request(request_id(7))).attempts == [2]


async def test_shadows_cost_nothing(world: LedgerWorld) -> None:
    """Mirrored copies are counted beside their request, and are in no entry of the ledger."""
    shadow = replace(PROJECT, kind=Kind.SHADOW)
    await world.record(batch_of([Told(request=1, numbers=WORDS)]))
    await world.record(batch_of([Told(request=1, subject=shadow, numbers=WORDS)], source="b"))
    assert (await world.ledger.balances("projects/acme/"))["projects/acme/usage"] == 2 * ONE
    assert (await world.totals())["requests"] == 2
    assert await world.problems() == []


async def test_one_subject_told_twice_is_one(world: LedgerWorld) -> None:
    """A worker that says the same subject twice in a batch is understood."""
    batch = batch_of([Told(request=1, numbers=WORDS), Told(request=2, numbers=WORDS)])
    subjects = [PROJECT, PROJECT]
    batch = replace(batch, subjects=subjects, subject=np.array([0, 1], dtype=np.int64))
    await world.record(batch)
    assert (await world.totals())["output_tokens"] == 8
    assert await world.problems() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_entries SET reason = 'x'",
        "DELETE FROM ledger_entries",
        "UPDATE ledger_postings SET amount = 0",
        "DELETE FROM ledger_postings",
        "UPDATE usage_rows SET output_tokens = 0",
        "DELETE FROM usage_rows",
        "UPDATE prices SET amount = 0",
        "DELETE FROM prices",
        "UPDATE usage_subjects SET project = 'x'",
        "DELETE FROM usage_superseded",
    ],
)
async def test_nothing_is_changed_or_deleted(world: LedgerWorld, statement: str) -> None:
    """The database itself refuses to change what was written, whoever asks."""
    rows = [Told(request=1), Told(request=1, attempt=2, duration_ns=5)]
    await world.record(batch_of(rows))
    with pytest.raises(InternalError, match=r"append-only|kept until"):
        await world.database.write(
            lambda connection: connection.run_sync(lambda c: c.exec_driver_sql(statement))
        )


async def test_a_broken_batch_leaves_nothing(world: LedgerWorld) -> None:
    """What goes wrong in the middle of a batch leaves neither rows nor sums nor a position."""

    def fails() -> Tariff:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await world.usage.record(batch_of([Told(request=1)]), fails)
    assert (await world.totals())["requests"] == 0
    recorded = await world.record(batch_of([Told(request=1)]))
    assert recorded.rows == 1
    assert await world.problems() == []


async def test_old_rows_are_dropped_and_sums_stay(world: LedgerWorld) -> None:
    """Retention deletes rows of old entries; sums, balances and the proof of the ledger stay."""
    await world.record(batch_of([Told(request=n, numbers=WORDS) for n in range(10)]))
    world.clock.advance(10 * 86_400)
    later = Told(request=3, attempt=2, start_ns=START_NS, numbers=WORDS)
    await world.record(batch_of([later, Told(request=20, numbers=WORDS)], source="b"))
    before = await world.totals()
    dropped = await Retention(world.usage, world.clock, days=5).drop()
    assert dropped == 10
    assert await world.sql("SELECT count(*) FROM usage_rows") == [(2,)]
    assert await world.totals() == before
    found = await world.ledger.verify(0, b"")
    assert (found.ok, found.rows, found.dropped_rows) == (True, 2, 10)
    assert await Retention(world.usage, world.clock, days=5).drop() == 0
    await world.record(batch_of([Told(request=30)], source="b", first=2))
    assert await world.problems() == []


async def test_credits_lower_what_is_owed_once(world: LedgerWorld) -> None:
    """A credit that is sent again is the one there is; the same id for something else is refused."""
    ledger = Ledger(world.ledger, KNOWN, world.clock)
    await world.record(batch_of([Told(request=1, numbers=WORDS)]))
    first = await ledger.add_credit(change("1.5", request_id="c1"))
    again = await ledger.add_credit(change("1.5", request_id="c1"))
    assert again.entry == first.entry
    assert sum((await ledger.balances(ACME)).values()) == ONE // 2
    with pytest.raises(AlreadyExistsError):
        await ledger.add_credit(change("2", request_id="c1"))
    assert await world.problems() == []


async def test_a_correction_names_what_it_puts_right(world: LedgerWorld) -> None:
    """Corrections are entries of their own and say which entry they are about."""
    ledger = Ledger(world.ledger, KNOWN, world.clock)
    await world.record(batch_of([Told(request=1, numbers=WORDS)]))
    entry = (await ledger.entries(ACME, None, 0, 10))[0].entry
    put_right = await ledger.add_correction(
        change("-0.5", corrects=f"ledgerEntries/{entry.number}")
    )
    assert put_right.entry.corrects == entry.number
    assert sum((await ledger.balances(ACME)).values()) == 3 * ONE // 2
    with pytest.raises(NotFoundError):
        await ledger.add_correction(change("1", corrects="ledgerEntries/99"))
    assert await world.problems() == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (change("0"), "amount"),
        (change("-1"), "amount"),
        (change("1", reason=""), "reason"),
        (change("1", request_id="x" * 64), "request_id"),
        (change("1", reason="a\0b"), "reason"),
    ],
)
async def test_bad_credits_are_refused(world: LedgerWorld, given: Change, field: str) -> None:
    """The field that breaks a rule is named."""
    with pytest.raises(InvalidArgumentError) as caught:
        await Ledger(world.ledger, KNOWN, world.clock).add_credit(given)
    assert caught.value.violations[0].field == field


async def test_what_is_for_a_project_that_is_not_there_is_refused(world: LedgerWorld) -> None:
    """Credits, corrections and prices: it is named, and nothing is written."""
    ledger = Ledger(world.ledger, KNOWN, world.clock)
    nobody = replace(change("1"), project=ProjectName("nowhere"))
    prices = len(world.prices.book.prices)
    for refused in (
        ledger.add_credit(nobody),
        ledger.add_correction(nobody),
        world.price(Unit.ROW, "1", project="nowhere"),
    ):
        with pytest.raises(NotFoundError) as caught:
            await refused
        assert caught.value.metadata["resource"] == "projects/nowhere"
    assert await ledger.entries(nobody.project, None, 0, 10) == []
    assert len(world.prices.book.prices) == prices


async def test_entries_are_listed_newest_first(world: LedgerWorld) -> None:
    """By project and kind, page by page."""
    ledger = Ledger(world.ledger, KNOWN, world.clock)
    other = replace(PROJECT, project="other")
    for number, subject in enumerate([PROJECT, other, PROJECT]):
        await world.record(batch_of([Told(request=number, subject=subject)], first=number))
    listed = await ledger.entries(ACME, None, 0, 10)
    assert [stored.entry.number for stored in listed] == [4, 2]
    assert [s.entry.number for s in await ledger.entries(None, None, 4, 2)] == [3, 2]
    posting = listed[0].postings[0]
    assert (posting.account, posting.quantity) == ("projects/acme/usage", 1)
    assert listed[0].subjects[posting.subject] == PROJECT


async def test_only_some_outcomes_are_charged(world: LedgerWorld) -> None:
    """What failed is counted in the ledger, and costs nothing."""
    rows = [Told(request=int(o), outcome=o, numbers=WORDS) for o in Outcome]
    await world.record(batch_of(rows))
    totals = await world.totals()
    assert totals["output_tokens"] == 4 * len(Outcome)
    assert totals["charged"] == 2 * ONE * len(CHARGED)


async def test_the_revision_of_prices_is_that_of_what_counts(world: LedgerWorld) -> None:
    """Another one with each new price, and once the moment of one has come."""
    seen = [world.prices.revision]
    await world.price(Unit.OUTPUT_TOKEN, "2", valid_from="2026-12-24T00:00+00:00")
    seen.append(world.prices.revision)
    assert world.prices.rates("acme", "smol", "1").output_token == ONE // 2
    world.clock.advance(30 * 86_400)
    seen.append(world.prices.revision)
    assert world.prices.rates("acme", "smol", "1").output_token == 2 * ONE
    assert len(set(seen)) == 3
    assert world.prices.revision == seen[-1]


async def test_batches_of_any_length_are_the_same_statements(tmp_path: Path) -> None:
    """A connection keeps the statements it has prepared, so they must not be others for each length."""
    engine = open_engine(new_ledger(tmp_path))
    seen: set[str] = set()

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def asked(*told: object) -> None:
        seen.add(str(told[2]))

    usage, first, few = SqlUsage(Database(engine), ManualClock()), 0, 0
    for length in (2, 2, 3, 50, 400):
        told = [
            Told(request=first + n, subject=replace(PROJECT, project=f"p{first + n}"), attempt=2)
            for n in range(length)
        ]
        await usage.record(batch_of(told, first=first), lambda: Tariff(PriceBook(()), CHARGED))
        first, few = first + length, few or len(seen)
    assert len(seen) == few
    await engine.dispose()
