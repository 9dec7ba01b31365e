"""Reports and exports say what was recorded, exactly."""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pytest

from services.metering.adapters.sql_charges import SqlCharges
from services.metering.adapters.sql_identity import SqlIdentityStore
from services.metering.adapters.table_files import open_table
from services.metering.domain.export import Content, Format
from services.metering.domain.focus import Account
from services.metering.domain.money import ONE, format_amount
from services.metering.domain.period import hour_of, moment_of
from services.metering.domain.report import Dimension, Query, Report, UsageFilter
from services.metering.domain.sums import SUMS
from services.metering.domain.unit import Unit
from services.metering.domain.usage import Kind, Outcome, Telemetry
from services.metering.drivers.exports import Exports
from services.metering.drivers.ledger import Change, Ledger
from services.metering.drivers.price_list import MachinePriceInput
from services.metering.drivers.reports import Reports
from services.metering.drivers.tags import TagReads
from services.metering.ports.identity_store import (
    IdentityStore,
    IdentityTransaction,
    IdentityView,
)
from services.rpc.errors import InvalidArgumentError, NotFoundError
from services.rpc.names import ProjectName
from services.rpc.postgres import Target
from tests.contract.metering.ledger_world import KNOWN, LedgerWorld, new_ledger, opened
from tests.metering_usage import PROJECT, START_NS, Told, batch_of, request_id
from tests.unit.metering.identities import key, project, signing

T = TypeVar("T")

HOUR_NS = 3600 * 10**9
START = datetime.fromtimestamp(START_NS // 10**9, UTC)
OTHER = replace(PROJECT, project="other", key="k2", endpoint="search", model="mini")

NEVER_EMPTY = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargeCategory",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "InvoiceIssuerName",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "ChargeFrequency",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "PricingQuantity",
    "PricingUnit",
    "PricingCategory",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ListUnitPrice",
    "ContractedUnitPrice",
    "SubAccountId",
    "SubAccountName",
    "ResourceId",
)


class CountedReads(SqlIdentityStore):
    """Identities in the ledger's own database, and how often that was read."""

    reads = 0

    async def read(self, work: Callable[[IdentityView], Awaitable[T]]) -> T:
        self.reads += 1
        return await super().read(work)


async def tagged(store: IdentityStore) -> None:
    """What the tests' callers are; project `other` has no tags, and its key is another issuer's."""

    async def work(transaction: IdentityTransaction) -> None:
        await transaction.put_signing_key(signing())
        await transaction.put_project(project("acme", tags={"team": "blue", "cost": "7"}))
        await transaction.put_project(project("other"))
        await transaction.put_key(key("k1", "acme"))
        await transaction.put_key(key("k9", "acme", tags={"team": "red"}))

    await store.write(work)


def tags(world: LedgerWorld) -> TagReads:
    return TagReads(SqlIdentityStore(world.database))


@pytest.fixture
async def world(ledger: Path | Target) -> AsyncIterator[LedgerWorld]:
    async with opened(ledger) as world:
        world.clock.set_wall(START + timedelta(days=2))
        await tagged(SqlIdentityStore(world.database))
        await world.price(Unit.OUTPUT_TOKEN, "0.0000015")
        await world.price(Unit.COMPUTE_SECOND, "0.000277")
        await world.price(Unit.REQUEST, "0.01", project="other")
        rows = [
            Told(
                request=number,
                subject=(PROJECT, OTHER, replace(PROJECT, key="k9"))[number % 3],
                start_ns=START_NS + number * HOUR_NS,
                outcome=Outcome.OK if number % 4 else Outcome.CANCELLED,
                numbers={"output_tokens": 3 + number, "compute_ns": 1_234_567 * number},
            )
            for number in range(12)
        ]
        texts = [Telemetry(1, b"\xab" * 16, 20, 30, {"rude": 0.5})]
        await world.record(batch_of(rows, telemetry=texts))
        shadow = replace(PROJECT, kind=Kind.SHADOW)
        retried = Told(request=5, attempt=2, start_ns=START_NS + 5 * HOUR_NS + 9)
        await world.record(batch_of([Told(request=1, subject=shadow), retried], source="b"))
        yield world


def reports(world: LedgerWorld) -> Reports:
    return Reports(world.reports, world.prices, tags(world), world.clock)


async def ask(world: LedgerWorld, *by: Dimension, **limits: object) -> Report:
    query = Query(filter=UsageFilter(**limits), by=by)  # type: ignore[arg-type] # of its types
    return await reports(world).query(query)


def sums(report: Report, name: str) -> dict[tuple[str, ...], int]:
    place = SUMS.index(name)
    return {line.values: line.sums[place] for line in report.lines}


@pytest.mark.parametrize("dimension", [d for d in Dimension if d is not Dimension.TAG])
async def test_lines_sum_to_the_total(world: LedgerWorld, dimension: Dimension) -> None:
    """Whatever a report is by, it says of all requests, and only once."""
    report = await ask(world, dimension)
    assert report.total.sums[SUMS.index("requests")] == 12
    for place in range(len(SUMS)):
        assert sum(line.sums[place] for line in report.lines) == report.total.sums[place]


async def test_lines_have_names(world: LedgerWorld) -> None:
    """Models, keys, days and tags are named as people know them."""
    assert sums(await ask(world, Dimension.MODEL), "requests") == {("smol",): 8, ("mini",): 4}
    by_key = sums(await ask(world, Dimension.KEY), "requests")
    assert by_key == {
        ("projects/acme/keys/k1",): 4,
        ("projects/acme/keys/k9",): 4,
        ("projects/other/keys/k2",): 4,
    }
    days = sums(await ask(world, Dimension.DAY), "requests")
    assert sum(days.values()) == 12
    assert list(days) == sorted(days)
    query = Query(filter=UsageFilter(), by=[Dimension.TAG], tag_key="team")
    found = sums(await reports(world).query(query), "requests")
    assert found == {("blue",): 4, ("red",): 4, ("",): 4}


async def test_tags_of_many_keys_are_one_read(world: LedgerWorld) -> None:
    """However many keys a report by tag is about, their tags are read together, once."""
    query = Query(filter=UsageFilter(), by=[Dimension.MODEL, Dimension.TAG], tag_key="team")
    for count in (1, 300):
        subjects = [replace(PROJECT, key=f"m{count}-{number}") for number in range(count)]
        rows = [Told(request=1000 + n, subject=one) for n, one in enumerate(subjects)]
        await world.record(batch_of(rows, source=f"many-{count}"))
        store = CountedReads(world.database)
        asked = Reports(world.reports, world.prices, TagReads(store), world.clock)
        found = sums(await asked.query(query), "requests")
        assert store.reads == 1
        assert found["smol", "red"] == found["mini", ""] == 4
    assert found["smol", "blue"] == 4 + 1 + 300


async def test_two_dimensions(world: LedgerWorld) -> None:
    """A report may be by two dimensions, times in order first."""
    report = await ask(world, Dimension.DAY, Dimension.MODEL)
    assert {line.values[1] for line in report.lines} == {"smol", "mini"}
    assert [line.values[0] for line in report.lines] == sorted(
        line.values[0] for line in report.lines
    )


async def test_filters(world: LedgerWorld) -> None:
    """Times are whole hours; project, key, endpoint, model, version and kind are exact."""
    since, until = START + timedelta(hours=2), START + timedelta(hours=5, minutes=-1)
    report = await ask(world, since=since, until=until)
    assert report.total.sums[0] == len({2, 3, 4, 5})
    assert moment_of(report.span.since) <= since < moment_of(report.span.since + 1)
    assert (await ask(world, project="other")).total.sums[0] == 4
    assert (await ask(world, key="k9")).total.sums[0] == 4
    assert (await ask(world, model="smol", version="1")).total.sums[0] == 8
    assert (await ask(world, kind=Kind.SHADOW)).total.sums[0] == 1
    assert (await ask(world, endpoint="nowhere")).total.sums[0] == 0


async def test_what_machines_cost_is_shared_out(world: LedgerWorld) -> None:
    """Lines share what their pool's machines cost by what they computed, so that all of it is somebody's."""
    assert (await ask(world, Dimension.MODEL)).total.machine_cost is None
    begin = moment_of(hour_of(START))
    await world.prices.create_machine_price(
        MachinePriceInput(pool="default", hourly_amount="2", machines=3, valid_from=begin)
    )
    until = begin + timedelta(hours=20)
    report = await ask(world, Dimension.MODEL, since=begin, until=until)
    total = report.total.machine_cost
    assert total is not None
    assert 120 * ONE - 2 <= total <= 120 * ONE  # parts are rounded down
    tokens = report.total.sums[SUMS.index("output_tokens")]
    assert report.total.cost_per_1k_tokens == total * 1000 // tokens


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (Query(filter=UsageFilter(), by=[Dimension.DAY, Dimension.HOUR]), "by"),
        (Query(filter=UsageFilter(), by=[Dimension.KEY, Dimension.KEY]), "by"),
        (Query(filter=UsageFilter(), by=list(Dimension)[:3]), "by"),
        (Query(filter=UsageFilter(), by=[Dimension.TAG]), "tag_key"),
        (Query(filter=UsageFilter(), by=[], tag_key="x"), "tag_key"),
        (Query(filter=UsageFilter(), by=[], limit=-1), "limit"),
        (Query(filter=UsageFilter(since=START, until=START), by=[]), "filter.until"),
    ],
)
async def test_bad_queries_are_refused(world: LedgerWorld, query: Query, field: str) -> None:
    """The field that breaks a rule is named."""
    with pytest.raises(InvalidArgumentError) as caught:
        await reports(world).query(query)
    assert caught.value.violations[0].field == field


async def test_a_request_can_be_looked_up(world: LedgerWorld) -> None:
    """Its attempts, its shadow, what it cost, and the entry that counts it."""
    found, shadow = await reports(world).request(request_id(1))
    assert (found.outcome, found.attempts, found.entry) == (Outcome.OK, 1, 4)
    assert found.sums[SUMS.index("charged")] == 4 * 1_500_000 + 1235 * 277 + ONE // 100
    assert (shadow.subject.kind, shadow.entry) == (Kind.SHADOW, 0)
    (retried,) = await reports(world).request(request_id(5))
    assert retried.attempts == 2
    with pytest.raises(NotFoundError):
        await reports(world).request(request_id(99))


def exports(world: LedgerWorld) -> Exports:
    stores = (world.reports, SqlCharges(world.database))
    return Exports(stores, world.prices, tags(world), Account("house", "USD"), open_table)


async def export(
    world: LedgerWorld, content: Content, kind: Format, usage: UsageFilter | None = None
) -> bytes:
    pieces = exports(world).export(content, kind, usage or UsageFilter())
    return b"".join([piece async for piece in pieces])


def asked(query: str) -> list[Any]:
    """What DuckDB answers."""
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


@pytest.mark.parametrize("content", [Content.REQUESTS, Content.HOURS])
async def test_duckdb_reads_what_is_exported(
    world: LedgerWorld, content: Content, tmp_path: Path
) -> None:
    """CSV and Parquet say the same, and sum to what the ledger has."""
    path = tmp_path / "usage.parquet"
    path.write_bytes(await export(world, content, Format.PARQUET))
    ((charged, tokens, count),) = asked(
        f"SELECT sum(charged), sum(output_tokens), count(*) FROM '{path}'"
    )
    owed = sum((await world.ledger.balances("projects/")).values())
    assert str(charged.normalize()) == format_amount(owed)
    totals = await world.totals()
    assert tokens == totals["output_tokens"]
    table = path.with_suffix(".csv")
    table.write_bytes(await export(world, content, Format.CSV))
    lines = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(lines) == count
    assert sum(Decimal(line["charged"]) for line in lines) == charged
    assert asked(f"SELECT sum(charged::DECIMAL(38, 12)) FROM '{table}'") == [(charged,)]


async def test_an_exported_request_says_all(world: LedgerWorld) -> None:
    """Each line has who, what, when, how it ended, and what is known of its text."""
    table = (await export(world, Content.REQUESTS, Format.CSV)).decode()
    line = list(csv.DictReader(io.StringIO(table)))[1]
    assert line["request_id"] == request_id(1).hex()
    assert (line["project"], line["model"], line["outcome"]) == ("other", "mini", "ok")
    assert line["prompt_fingerprint"] == "ab" * 16
    assert line["scores"] == '{"rude": 0.5}'
    assert datetime.fromisoformat(line["start_time"]) == START + timedelta(hours=1)


async def test_an_empty_export_has_its_columns(tmp_path: Path) -> None:
    """Who exports nothing gets a table without lines."""
    async with opened(new_ledger(tmp_path)) as world:
        for content in Content:
            lines = (await export(world, content, Format.CSV)).decode().splitlines()
            assert len(lines) == 1
            path = tmp_path / f"{content}.parquet"
            path.write_bytes(await export(world, content, Format.PARQUET))
            assert asked(f"SELECT count(*) FROM '{path}'") == [(0,)]


async def focus_lines(world: LedgerWorld) -> Sequence[Mapping[str, str]]:
    table = (await export(world, Content.FOCUS, Format.CSV)).decode()
    return list(csv.DictReader(io.StringIO(table)))


async def test_focus_reconciles_with_the_ledger(world: LedgerWorld) -> None:
    """FOCUS lines sum to what projects owe, to the last decimal, credits and corrections with them."""
    ledger = Ledger(world.ledger, KNOWN, world.clock)
    acme = ProjectName("acme")
    credit = Change(project=acme, amount="0.25", reason="welcome", request_id="")
    await ledger.add_credit(credit)
    world.clock.advance(40 * 86_400)
    await ledger.add_correction(replace(credit, amount="-0.125", corrects="ledgerEntries/4"))
    lines = await focus_lines(world)
    owed = sum((await world.ledger.balances("projects/")).values())
    for column in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert sum(Decimal(line[column]) for line in lines) == Decimal(format_amount(owed))
    kinds = [line["ChargeCategory"] for line in lines]
    assert kinds.count("Credit") == kinds.count("Adjustment") == 1
    (corrected,) = (line for line in lines if line["ChargeCategory"] == "Adjustment")
    assert corrected["ChargeClass"] == "Correction"  # of a month that has ended


async def test_focus_lines_follow_its_rules(world: LedgerWorld) -> None:
    """What FOCUS 1.2 says of quantities, unit prices, periods and what may not be empty."""
    lines = await focus_lines(world)
    assert lines
    skus = set()
    for line in lines:
        assert [name for name in NEVER_EMPTY if not line[name]] == []
        product = Decimal(line["PricingQuantity"]) * Decimal(line["ListUnitPrice"])
        assert product == Decimal(line["ListCost"]) == Decimal(line["BilledCost"])
        assert line["ChargePeriodStart"] < line["ChargePeriodEnd"] <= line["BillingPeriodEnd"]
        assert line["BillingPeriodStart"] <= line["ChargePeriodStart"]
        skus.add((line["SkuPriceId"], line["SkuId"]))
    assert len(skus) == len({price for price, _ in skus})  # one SKU for each price


async def test_exports_are_filtered(world: LedgerWorld) -> None:
    """By project and time, as reports are."""
    usage = UsageFilter(project="other", since=START + timedelta(hours=2))
    lines = (await export(world, Content.REQUESTS, Format.CSV, usage)).decode().splitlines()
    assert len(lines) == 1 + len({4, 7, 10})
