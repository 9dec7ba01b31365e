"""`inferplane.metering.v1.PriceService`: the price book, and what machines cost."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import grpc
from inferplane.metering.v1 import machine_price_pb2, price_pb2
from inferplane.metering.v1 import price_service_pb2 as pb
from inferplane.metering.v1.price_service_pb2_grpc import PriceServiceServicer

from services.metering.domain.machine_price import MachinePrice
from services.metering.domain.money import format_amount
from services.metering.domain.price import Price
from services.metering.domain.unit import Unit
from services.metering.drivers.price_list import MachinePriceInput, PriceInput, PriceList
from services.rpc.errors import NotFoundError
from services.rpc.page import Page, PageRequest, cut, page_request
from services.rpc.times import moment, timestamp

_Context = grpc.aio.ServicerContext[Any, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIX = "prices/"
T = TypeVar("T", Price, MachinePrice)


def _at(nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def price_message(price: Price) -> price_pb2.Price:
    """The price as a message."""
    return price_pb2.Price(
        name=f"{_PREFIX}{price.id}",
        unit=price_pb2.PriceUnit.ValueType(price.unit),
        amount=format_amount(price.amount),
        project=price.project,
        model=price.model,
        version=price.version,
        valid_from=timestamp(_at(price.valid_from_ns)),
        create_time=timestamp(price.create_time),
    )


def _machine_price_message(price: MachinePrice) -> machine_price_pb2.MachinePrice:
    return machine_price_pb2.MachinePrice(
        name=f"machinePrices/{price.id}",
        pool=price.pool,
        hourly_amount=format_amount(price.hourly_amount),
        machines=price.machines,
        valid_from=timestamp(_at(price.valid_from_ns)),
        create_time=timestamp(price.create_time),
    )


def _page(wanted: PageRequest, newest_first: list[T]) -> Page[T]:
    """A page of what has ids that only grow."""
    if wanted.after:
        newest_first = [price for price in newest_first if price.id < int(wanted.after)]
    return cut(wanted, newest_first[: wanted.size + 1], lambda price: str(price.id))


def _unit(value: int) -> Unit | None:
    return Unit(value) if value in set(Unit) else None


class PriceService(PriceServiceServicer):
    """Reads requests, asks the price list, writes answers."""

    def __init__(self, prices: PriceList, currency: str) -> None:
        self._prices = prices
        self._currency = currency

    async def CreatePrice(
        self, request: pb.CreatePriceRequest, context: _Context
    ) -> pb.CreatePriceResponse:
        given = request.price
        begins = given.HasField("valid_from")
        price = await self._prices.create(
            PriceInput(
                unit=_unit(given.unit),
                amount=given.amount,
                project=given.project,
                model=given.model,
                version=given.version,
                valid_from=moment("price.valid_from", given.valid_from) if begins else None,
            )
        )
        return pb.CreatePriceResponse(price=price_message(price))

    async def GetPrice(self, request: pb.GetPriceRequest, context: _Context) -> pb.GetPriceResponse:
        number = request.name.removeprefix(_PREFIX)
        if not (request.name.startswith(_PREFIX) and number.isascii() and number.isdecimal()):
            raise NotFoundError(
                f"there is no price {request.name[:80]!a}; names are such as prices/12"
            )
        return pb.GetPriceResponse(price=price_message(self._prices.get(int(number))))

    async def ListPrices(
        self, request: pb.ListPricesRequest, context: _Context
    ) -> pb.ListPricesResponse:
        listing = f"prices/{request.project}/{request.model}/{request.unit}"
        wanted = page_request(listing, request.page_size, request.page_token)
        found = self._prices.listed(request.project, request.model, _unit(request.unit))
        page = _page(wanted, list(found))
        return pb.ListPricesResponse(
            prices=[price_message(price) for price in page.items],
            next_page_token=page.next_page_token,
            currency=self._currency,
        )

    async def CreateMachinePrice(
        self, request: pb.CreateMachinePriceRequest, context: _Context
    ) -> pb.CreateMachinePriceResponse:
        given = request.machine_price
        begins = given.HasField("valid_from")
        price = await self._prices.create_machine_price(
            MachinePriceInput(
                pool=given.pool,
                hourly_amount=given.hourly_amount,
                machines=given.machines,
                valid_from=moment("machine_price.valid_from", given.valid_from) if begins else None,
            )
        )
        return pb.CreateMachinePriceResponse(machine_price=_machine_price_message(price))

    async def ListMachinePrices(
        self, request: pb.ListMachinePricesRequest, context: _Context
    ) -> pb.ListMachinePricesResponse:
        wanted = page_request(
            f"machinePrices/{request.pool}", request.page_size, request.page_token
        )
        found = [
            price
            for price in reversed(self._prices.machine_prices)
            if request.pool in {"", price.pool}
        ]
        page = _page(wanted, found)
        return pb.ListMachinePricesResponse(
            machine_prices=[_machine_price_message(price) for price in page.items],
            next_page_token=page.next_page_token,
        )
