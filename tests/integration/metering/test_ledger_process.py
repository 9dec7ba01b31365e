"""The ledger in the process: usage over gRPC, kills in the middle of it, and what all its services answer."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from inferplane.metering.v1 import (
    ledger_service_pb2,
    ledger_service_pb2_grpc,
    machine_price_pb2,
    price_pb2,
    price_service_pb2,
    price_service_pb2_grpc,
    spending_alert_pb2,
    spending_alert_service_pb2,
    spending_alert_service_pb2_grpc,
    usage_pb2,
    usage_report_service_pb2,
    usage_report_service_pb2_grpc,
    usage_service_pb2,
    usage_service_pb2_grpc,
)

from tests.integration.metering.metering_process import (
    SECONDS,
    MeteringStubs,
    connected,
    end,
    launch,
    running,
    serving,
)

START_NS = 1_795_000_000 * 10**9


def request_of(
    first: int, rows: int, source: str = "outbox", **columns: Sequence[int]
) -> usage_service_pb2.RecordUsageRequest:
    """Rows whose request ids are their numbers."""
    batch = usage_pb2.UsageBatch(
        subjects=[
            usage_pb2.UsageSubject(
                project="default",
                key="k1",
                endpoint="chat",
                version="models/smol/versions/1",
                kind=usage_pb2.USAGE_KIND_REQUEST,
            )
        ],
        subject=[0] * rows,
        request_ids=b"".join(number.to_bytes(16, "big") for number in range(first, first + rows)),
        outcome=[usage_pb2.USAGE_OUTCOME_OK] * rows,
        start_ns=[START_NS] * rows,
        output_tokens=[3] * rows,
    )
    for name, values in columns.items():
        del getattr(batch, name)[:]
        getattr(batch, name).extend(values)
    return usage_service_pb2.RecordUsageRequest(source=source, first_sequence=first, batch=batch)


async def record(stubs: MeteringStubs, request: usage_service_pb2.RecordUsageRequest) -> int:
    usage = usage_service_pb2_grpc.UsageServiceStub(stubs.channel)
    return (await usage.RecordUsage(request)).next_sequence


async def verified(stubs: MeteringStubs) -> ledger_service_pb2.VerifyLedgerResponse:
    ledger = ledger_service_pb2_grpc.LedgerServiceStub(stubs.channel)
    return await ledger.VerifyLedger(ledger_service_pb2.VerifyLedgerRequest())


async def total(stubs: MeteringStubs) -> usage_report_service_pb2.UsageSums:
    reports = usage_report_service_pb2_grpc.UsageReportServiceStub(stubs.channel)
    query = usage_report_service_pb2.QueryUsageRequest()
    return (await reports.QueryUsage(query)).total


async def set_price(stubs: MeteringStubs, amount: str) -> price_pb2.Price:
    prices = price_service_pb2_grpc.PriceServiceStub(stubs.channel)
    price = price_pb2.Price(unit=price_pb2.PRICE_UNIT_OUTPUT_TOKEN, amount=amount)
    price.valid_from.seconds = 1
    return (await prices.CreatePrice(price_service_pb2.CreatePriceRequest(price=price))).price


async def test_kills_in_the_middle_lose_nothing_and_count_nothing_twice(folder: Path) -> None:
    """Kill -9 while batches are on their way: the worker sends from what is wanted, and all are there once."""
    chance = random.Random(5)
    rows, wanted, sent = 100, 4000, 0
    for _ in range(2):
        process = await launch(folder)
        async with connected(folder) as stubs:
            await serving(process, stubs)
            killing = asyncio.create_task(_kill(process, chance.uniform(0.0, 0.3)))
            with contextlib.suppress(grpc.aio.AioRpcError):
                while sent < wanted:
                    sent = await record(stubs, request_of(sent, rows))
            await killing
    async with running(folder) as (_, stubs):
        # What was acknowledged is there: the numbers begin where they ended, or later.
        while sent < wanted:
            sent = await record(stubs, request_of(sent, rows))
        found, sums = await verified(stubs), await total(stubs)
    assert (found.ok, found.rows) == (True, wanted)
    assert (sums.requests, sums.output_tokens) == (wanted, 3 * wanted)


async def _kill(process: asyncio.subprocess.Process, after: float) -> None:
    await asyncio.sleep(after)
    await end(process, signal.SIGKILL)


async def test_all_of_it_survives_a_restart(folder: Path) -> None:
    """Prices, usage, credits and alerts are there again, and what was spent goes on from there."""
    alert = spending_alert_pb2.SpendingAlert(
        name="projects/default/spendingAlerts/monthly", monthly_amount="10", percents=[50]
    )
    async with running(folder) as (_, stubs):
        price = await set_price(stubs, "0.5")
        alerts = spending_alert_service_pb2_grpc.SpendingAlertServiceStub(stubs.channel)
        await alerts.SetSpendingAlert(
            spending_alert_service_pb2.SetSpendingAlertRequest(spending_alert=alert)
        )
        await record(stubs, request_of(0, 2))
        head = (await verified(stubs)).head_entry
    async with running(folder) as (_, stubs):
        assert (await set_price(stubs, "0.5")).name == price.name  # the one there is
        await record(stubs, request_of(2, 3))
        assert (await total(stubs)).charged == "7.5"
        alerts = spending_alert_service_pb2_grpc.SpendingAlertServiceStub(stubs.channel)
        listing = spending_alert_service_pb2.ListSpendingNoticesRequest(parent="projects/default")
        async with asyncio.timeout(SECONDS):
            while not (told := (await alerts.ListSpendingNotices(listing)).spending_notices):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert told[0].spent == "7.5"
        found = await verified(stubs)
        assert found.ok
        assert int(found.head_entry.split("/")[1]) == int(head.split("/")[1]) + 1


async def test_services_answer(metering: MeteringStubs) -> None:
    """Credits, balances, entries, machine prices, single requests and exports over gRPC."""
    stubs = metering
    await set_price(stubs, "0.000002")
    await record(stubs, request_of(0, 5))
    ledger = ledger_service_pb2_grpc.LedgerServiceStub(stubs.channel)
    credit = ledger_service_pb2.AddCreditRequest(
        project="projects/default", amount="0.00001", reason="welcome", request_id="c"
    )
    first, again = await ledger.AddCredit(credit), await ledger.AddCredit(credit)
    assert first == again
    balance = await ledger.GetBalance(
        ledger_service_pb2.GetBalanceRequest(project="projects/default")
    )
    assert (balance.owed, balance.currency) == ("0.00002", "USD")
    listing = ledger_service_pb2.ListLedgerEntriesRequest(project="projects/default", page_size=1)
    page = await ledger.ListLedgerEntries(listing)
    listing.page_token = page.next_page_token
    (usage,) = (await ledger.ListLedgerEntries(listing)).entries
    assert usage.postings[0].account == "projects/default/usage"
    prices = price_service_pb2_grpc.PriceServiceStub(stubs.channel)
    machines = machine_price_pb2.MachinePrice(pool="default", hourly_amount="1.8", machines=2)
    made = await prices.CreateMachinePrice(
        price_service_pb2.CreateMachinePriceRequest(machine_price=machines)
    )
    assert made.machine_price.name == "machinePrices/1"
    reports = usage_report_service_pb2_grpc.UsageReportServiceStub(stubs.channel)
    found = await reports.GetRequestUsage(
        usage_report_service_pb2.GetRequestUsageRequest(
            request_id="00000000-0000-0000-0000-000000000003"
        )
    )
    assert (found.requests[0].sums.charged, found.requests[0].ledger_entry) == (
        "0.000006",
        usage.name,
    )
    export = usage_report_service_pb2.ExportUsageRequest(
        content=usage_report_service_pb2.EXPORT_CONTENT_REQUESTS,
        format=usage_report_service_pb2.EXPORT_FORMAT_CSV,
    )
    table = b"".join([piece.chunk async for piece in reports.ExportUsage(export)])
    assert len(table.decode().splitlines()) == 6
    assert (await verified(stubs)).ok


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(request_of(7, 1), grpc.StatusCode.FAILED_PRECONDITION, id="a gap"),
        pytest.param(
            request_of(0, 1, queue_ns=[1, 2]), grpc.StatusCode.INVALID_ARGUMENT, id="lengths"
        ),
        pytest.param(request_of(0, 1, outcome=[9]), grpc.StatusCode.INVALID_ARGUMENT, id="outcome"),
        pytest.param(request_of(0, 1, subject=[1]), grpc.StatusCode.INVALID_ARGUMENT, id="subject"),
        pytest.param(
            request_of(0, 1, duration_ns=[2**64 - 1]),
            grpc.StatusCode.INVALID_ARGUMENT,
            id="a number that no clock says",
        ),
        pytest.param(request_of(0, 1, ""), grpc.StatusCode.INVALID_ARGUMENT, id="no source"),
    ],
)
async def test_bad_batches_are_refused_whole(
    metering: MeteringStubs, request_: Any, code: grpc.StatusCode
) -> None:
    """The status says what to do, and nothing is stored."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await record(metering, request_)
    assert caught.value.code() is code
    assert (await total(metering)).requests == 0


async def test_rubbish_is_refused(metering: MeteringStubs) -> None:
    """Random bytes as a batch end with a status, and the process goes on."""
    call: Any = metering.channel.unary_unary("/inferplane.metering.v1.UsageService/RecordUsage")
    for size in range(1, 60):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(os.urandom(size))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await record(metering, request_of(0, 1)) == 1
