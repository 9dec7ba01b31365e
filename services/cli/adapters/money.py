"""Prices, credits and the ledger, as the edge's management API has them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from inferplane.metering.v1 import (
    ledger_pb2,
    ledger_service_pb2,
    machine_price_pb2,
    price_pb2,
    price_service_pb2,
)

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.rpc.names import ProjectName

_PAGE = 1000
_VERIFY_SECONDS = 3600.0  # everything is counted again


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices and what they are in."""

    prices: list[price_pb2.Price]
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """An entry that a person makes."""

    project: ProjectName
    amount: str  # decimal
    reason: str
    request_id: str  # sending it again makes no second entry
    corrects: str = ""  # ledgerEntries/{number}


def stamp(moment: datetime | None) -> Timestamp | None:
    """A moment as messages have it."""
    if moment is None:
        return None
    made = Timestamp()
    made.FromDatetime(moment)
    return made


async def set_price(edge: Edge, price: price_pb2.Price) -> price_pb2.Price:
    """A price that takes over from its moment on."""
    request = price_service_pb2.CreatePriceRequest(price=price)
    return (await edge.prices.CreatePrice(request, timeout=CALL_SECONDS)).price


async def list_prices(edge: Edge, project: str, model: str) -> PriceList:
    """The price book, newest first."""
    currency = ""

    async def page(token: str) -> price_service_pb2.ListPricesResponse:
        nonlocal currency
        request = price_service_pb2.ListPricesRequest(
            page_size=_PAGE, page_token=token, project=project, model=model
        )
        response = await edge.prices.ListPrices(request, timeout=CALL_SECONDS)
        currency = response.currency
        return response

    found = await pages(page, lambda response: list(response.prices))
    return PriceList(found, currency)


async def set_machine_price(
    edge: Edge, price: machine_price_pb2.MachinePrice
) -> machine_price_pb2.MachinePrice:
    """What a pool's machines cost from a moment on."""
    request = price_service_pb2.CreateMachinePriceRequest(machine_price=price)
    return (await edge.prices.CreateMachinePrice(request, timeout=CALL_SECONDS)).machine_price


async def list_machine_prices(edge: Edge) -> list[machine_price_pb2.MachinePrice]:
    """Of all pools, newest first."""

    def page(token: str) -> Any:
        request = price_service_pb2.ListMachinePricesRequest(page_size=_PAGE, page_token=token)
        return edge.prices.ListMachinePrices(request, timeout=CALL_SECONDS)

    return await pages(page, lambda response: list(response.machine_prices))


async def add_credit(edge: Edge, booking: Booking) -> ledger_pb2.LedgerEntry:
    """Lower what a project owes."""
    request = ledger_service_pb2.AddCreditRequest(
        project=str(booking.project),
        amount=booking.amount,
        reason=booking.reason,
        request_id=booking.request_id,
    )
    return (await edge.ledger.AddCredit(request, timeout=CALL_SECONDS)).entry


async def add_correction(edge: Edge, booking: Booking) -> ledger_pb2.LedgerEntry:
    """Put right what a project owes."""
    request = ledger_service_pb2.AddCorrectionRequest(
        project=str(booking.project),
        amount=booking.amount,
        reason=booking.reason,
        request_id=booking.request_id,
        corrects=booking.corrects,
    )
    return (await edge.ledger.AddCorrection(request, timeout=CALL_SECONDS)).entry


async def balance(edge: Edge, project: ProjectName) -> ledger_service_pb2.GetBalanceResponse:
    """What a project owes."""
    request = ledger_service_pb2.GetBalanceRequest(project=str(project))
    return await edge.ledger.GetBalance(request, timeout=CALL_SECONDS)


async def newest_entries(edge: Edge, project: str, most: int) -> list[ledger_pb2.LedgerEntry]:
    """So many entries at most, newest first; `project` is a resource name, or empty for all."""
    found: list[ledger_pb2.LedgerEntry] = []
    token = ""
    while len(found) < most:
        request = ledger_service_pb2.ListLedgerEntriesRequest(
            page_size=min(_PAGE, most - len(found)), page_token=token, project=project
        )
        response = await edge.ledger.ListLedgerEntries(request, timeout=CALL_SECONDS)
        found += response.entries
        token = response.next_page_token
        if not token:
            break
    return found


async def verify(
    edge: Edge, known_entry: str, known_hash: str
) -> ledger_service_pb2.VerifyLedgerResponse:
    """Have everything counted again."""
    request = ledger_service_pb2.VerifyLedgerRequest(known_entry=known_entry, known_hash=known_hash)
    return await edge.ledger.VerifyLedger(request, timeout=_VERIFY_SECONDS)
