"""Budgets for tests: the real service on a unix socket with its database, and workers' allowances beside it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import grpc
from inferplane.metering.v1 import (
    budget_pb2,
    budget_service_pb2,
    budget_service_pb2_grpc,
    lease_service_pb2_grpc,
)

from services.metering.adapters.database import Database
from services.metering.adapters.sql_budget_store import SqlBudgetStore
from services.metering.domain.lease_exchange import Alert
from services.metering.drivers.budgets import Budgets
from services.metering.drivers.lease_desk import LeaseDesk
from services.metering.ports.rates import Rates
from services.metering.servicers.budget_service import BudgetService
from services.metering.servicers.lease_service import LeaseService
from services.rpc import channel
from services.rpc.clock import Clock, SystemClock
from services.rpc.errors import NotFoundError
from services.rpc.names import ProjectName, VersionName
from services.rpc.server import RpcServer
from services.worker.adapters.lease_client import LeaseClient
from services.worker.domain.caller import Caller
from services.worker.domain.need import Need
from services.worker.drivers.allowance import Allowances
from services.worker.drivers.lease_rounds import LeaseRounds
from services.worker.ports.allowance import Reservation

MESSAGE_BYTES = 8 * 1024 * 1024
LEASE_SECONDS = 10.0
VERSION = VersionName("m", "1")


class KnownProjects:
    """Projects that there are."""

    async def get(self, name: ProjectName) -> object:
        if name.project == "unknown":
            raise NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})
        return name


@dataclass
class FixedRates:
    """One price list for everybody."""

    now: Rates = field(default_factory=Rates)

    @property
    def revision(self) -> str:
        return repr(self.now)

    def rates(self, project: str, model: str, version: str) -> Rates:
        return self.now


@dataclass
class Metering:
    """A running service."""

    address: str
    desk: LeaseDesk
    alerts: list[Alert]
    rates: FixedRates


@asynccontextmanager
async def metering(folder: Path, clock: Clock | None = None) -> AsyncIterator[Metering]:
    """Serve budgets out of the folder's database until the block ends."""
    address = f"unix:{folder / 'budgets.sock'}"
    alerts: list[Alert] = []
    rates = FixedRates()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database.open(folder / "metering.db"))
        desk = LeaseDesk(
            SqlBudgetStore(database), clock or SystemClock(), LEASE_SECONDS, alerts.append
        )
        await desk.open()
        server = RpcServer(address=address, max_message_bytes=MESSAGE_BYTES)
        budget_service_pb2_grpc.add_BudgetServiceServicer_to_server(
            BudgetService(Budgets(desk, KnownProjects())), server.grpc
        )
        lease_service_pb2_grpc.add_LeaseServiceServicer_to_server(
            LeaseService(desk, rates), server.grpc
        )
        await server.start([])
        running = asyncio.create_task(desk.run())
        try:
            yield Metering(address, desk, alerts, rates)
        finally:
            running.cancel()
            await asyncio.wait([running])
            await server.stop(0)
            async with desk.writing:  # what was being written is
                pass


@asynccontextmanager
async def worker(
    address: str,
    holder: str,
    *,
    failure: Literal["open", "closed"] = "open",
    clock: Clock | None = None,
    dies: bool = False,
) -> AsyncIterator[Allowances]:
    """A worker's allowances that exchange with metering until the block ends: it gives everything back, or dies."""
    allowances = Allowances(clock or SystemClock(), failure)
    async with channel.connect(address) as to_metering:
        rounds = LeaseRounds(allowances, LeaseClient(to_metering, holder))
        running = asyncio.create_task(rounds.run())
        try:
            yield allowances
        finally:
            running.cancel()
            await asyncio.wait([running])
            if not dies:
                await rounds.end()


def stub(to_metering: grpc.aio.Channel) -> "budget_service_pb2_grpc.BudgetServiceAsyncStub":
    """What people call."""
    return budget_service_pb2_grpc.BudgetServiceStub(to_metering)


async def make_budget(
    to_metering: grpc.aio.Channel, budget: budget_pb2.Budget, project: str = "acme", name: str = "b"
) -> budget_pb2.Budget:
    """Create a budget."""
    request = budget_service_pb2.CreateBudgetRequest(
        parent=f"projects/{project}", budget_id=name, budget=budget
    )
    made = await stub(to_metering).CreateBudget(request)
    return made.budget


async def status(to_metering: grpc.aio.Channel, name: str = "b") -> budget_pb2.BudgetStatus:
    """Where a budget stands; asked again where the service was just stopped."""
    request = budget_service_pb2.GetBudgetRequest(name=f"projects/acme/budgets/{name}")
    while True:
        try:
            answer = await stub(to_metering).GetBudget(request, wait_for_ready=True, timeout=60)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        else:
            return answer.budget.status


async def reserved(
    allowances: Allowances, need: Need, key: str = "k", version: VersionName = VERSION
) -> Reservation:
    """Set aside, after waiting where that is asked for."""
    found = allowances.reserve(Caller("acme", key, "e"), version, need)
    return await found if isinstance(found, Awaitable) else found


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Ask again until it holds; TimeoutError if it doesn't."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - a service is asked
            await asyncio.sleep(0.01)
