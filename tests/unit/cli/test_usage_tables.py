"""What tables and charts show of usage and money."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from inferplane.metering.v1 import (
    api_key_pb2,
    budget_pb2,
    ledger_pb2,
    price_pb2,
    usage_report_service_pb2,
)

from services.cli.adapters import account_tables, budgets, money_tables, usage_chart, usage_tables

_DAY = usage_report_service_pb2.USAGE_DIMENSION_DAY
_MODEL = usage_report_service_pb2.USAGE_DIMENSION_MODEL


def _report(**charged: str) -> usage_report_service_pb2.QueryUsageResponse:
    report = usage_report_service_pb2.QueryUsageResponse(currency="EUR")
    for number, (value, amount) in enumerate(charged.items(), 1):
        line = report.lines.add(values=[value.replace("_", "-")])
        line.sums.requests = number
        line.sums.charged = amount
        report.total.requests += number
    report.total.charged = "3"
    return report


def test_columns_without_anything_are_left_out() -> None:
    """Requests and their compute are always told; tokens only where there are any; all are summed up."""
    headers, rows = usage_tables.table(_report(a="1.000000000000", b="2"), ["model"])
    assert headers == ["MODEL", "REQUESTS", "COMPUTE", "CHARGED EUR"]
    assert rows == [
        ["a", "1", "0.000 s", "1"],
        ["b", "2", "0.000 s", "2"],
        ["ALL", "3", "0.000 s", "3"],
    ]


def test_names_are_as_they_are_typed() -> None:
    """A version is MODEL@VERSION; what requests have none of is a dash."""
    assert usage_tables.named("models/digits/versions/2") == "digits@2"
    assert usage_tables.named("") == "-"


def test_bars_are_as_long_as_their_values() -> None:
    """The longest fills the room, half of it is half as long."""
    drawn = usage_chart.draw(_report(a="1", b="2"), _MODEL, "charged", 60).splitlines()
    assert drawn[0] == "charged, EUR"
    assert [line.count("█") for line in drawn[1:]] == [22, 43]
    assert all(len(line) <= 60 for line in drawn)


def test_columns_in_time() -> None:
    """A column for each day, its date below, plain text."""
    drawn = usage_chart.draw(_report(**{"2026_11_29": "1", "2026_11_30": "2"}), _DAY, "charged", 60)
    assert "2026-11-29" in drawn
    assert "█" in drawn
    assert "\x1b" not in drawn


def test_nothing_is_not_drawn() -> None:
    """Bars of zeros would say that there is something."""
    assert usage_chart.draw(_report(a="0"), _MODEL, "tokens", 60) == "no tokens to draw"


def test_the_measure_that_says_most() -> None:
    """The price, or else the tokens, or else how many."""
    sums = usage_report_service_pb2.UsageSums
    assert usage_chart.best_measure(sums(charged="1", input_tokens=5)) == "charged"
    assert usage_chart.best_measure(sums(charged="0", input_tokens=5)) == "tokens"
    assert usage_chart.best_measure(sums(requests=5)) == "requests"


def test_state_of_keys() -> None:
    """Good, ending, revoked, expired."""
    now = datetime(2026, 11, 30, tzinfo=UTC)
    past, future = Timestamp(seconds=1_700_000_000), Timestamp(seconds=1_900_000_000)
    key = api_key_pb2.ApiKey
    assert account_tables.key_state(key(expire_time=future), now) == "good"
    assert account_tables.key_state(key(expire_time=past), now) == "expired"
    assert account_tables.key_state(key(revoke_time=past, expire_time=future), now) == "revoked"
    assert account_tables.key_state(key(revoke_time=future), now).startswith("ends 20")


def test_a_budget_as_it_stands() -> None:
    """Its amount by its window, what is used, held and left, and whom it binds."""
    budget = budget_pb2.Budget(
        name="projects/atlas/budgets/daily",
        tokens=5000,
        window=budget_pb2.BUDGET_WINDOW_DAY,
        endpoint="digits",
        stop_streams=True,
        status=budget_pb2.BudgetStatus(used="1200", held="300", remaining="3500", unreported="7"),
    )
    shown = {header: cell(budget) for header, cell in budgets.COLUMNS}
    assert shown == {
        "BUDGET": "atlas/daily",
        "AMOUNT": "5,000 tokens a day",
        "OF": "endpoint digits",
        "MODE": "refuses, ends streams",
        "USED": "1,200 and 7 unreported",
        "HELD": "300",
        "LEFT": "3,500",
        "REFUSED": "0",
        "ANEW": "",
    }


def test_postings_of_an_entry() -> None:
    """The entry's number, time and kind stand before the first of them only."""
    entry = ledger_pb2.LedgerEntry(name="ledgerEntries/7", kind=ledger_pb2.LEDGER_ENTRY_KIND_USAGE)
    entry.postings.add(
        account="projects/atlas/usage",
        amount="0.500000000000",
        quantity=5,
        unit=price_pb2.PRICE_UNIT_ROW,
        key="4f",
        endpoint="digits",
        version="models/digits/versions/2",
    )
    entry.postings.add(account="revenue/row", amount="-0.5")
    first, second = money_tables.entry_rows(entry)
    what = "endpoint digits, digits@2, 4f"
    assert first == ["7", "", "usage", "projects/atlas/usage", "0.5", "5", "row", what]
    assert second == ["", "", "", "revenue/row", "-0.5", "", "", ""]


def test_entries_of_the_ledger() -> None:
    """Compute is shown in seconds as it is priced, and an entry without postings says what it is."""
    posting = ledger_pb2.Posting(
        account="projects/atlas/usage",
        amount="0.01",
        unit=price_pb2.PRICE_UNIT_COMPUTE_SECOND,
        quantity=1_500_178,
        endpoint="digits",
    )
    usage = ledger_pb2.LedgerEntry(name="ledgerEntries/7", postings=[posting])
    (row,) = money_tables.entry_rows(usage)
    assert row[3:] == [
        "projects/atlas/usage",
        "0.01",
        "1.500178",
        "compute-second",
        "endpoint digits",
    ]
    price = ledger_pb2.LedgerEntry(name="ledgerEntries/8", reason="prices/6 request")
    assert money_tables.entry_rows(price)[0][3:] == ["", "", "", "", "prices/6 request"]
