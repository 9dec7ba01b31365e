"""One budget, many callers on many workers: used up to its end, and no further."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from services.rpc import channel
from services.rpc.errors import ResourceExhaustedError
from services.worker.domain.need import Need
from services.worker.drivers.allowance import Allowances
from tests.integration.metering.budget_world import (
    make_budget,
    metering,
    reserved,
    status,
    until,
    worker,
)
from tests.integration.metering.test_budgets import tokens


@pytest.mark.parametrize("workers", [12])
async def test_a_thousand_callers_on_twelve_workers_use_a_budget_up_and_no_more(
    tmp_path: Path, workers: int
) -> None:
    """Four workers behind each of three routers: never more than the budget, at least 99 % of it, nothing held."""
    budget = 150_000
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(metering(tmp_path))
        people = await stack.enter_async_context(channel.connect(service.address))
        await make_budget(people, tokens(budget))
        mesh = [
            await stack.enter_async_context(worker(service.address, f"w{number}"))
            for number in range(workers)
        ]
        crowd = Crowd(mesh, budget)
        async with asyncio.timeout(120):
            await asyncio.gather(*(crowd.call(number) for number in range(1000)))
        assert crowd.most <= budget
        assert crowd.used >= budget * 0.99

        async def is_at_rest() -> bool:
            found = await status(people)
            return (found.held, found.used) == ("0", str(crowd.used))

        await until(is_at_rest)


class Crowd:
    """Callers that go on until the budget is used up, and try again when they are told to."""

    def __init__(self, mesh: list[Allowances], budget: int) -> None:
        self.mesh = mesh
        self.budget = budget
        self.used = self.under_way = self.most = 0
        self.random = random.Random(7)

    async def call(self, number: int) -> None:
        tries = 0
        while tries < 20:
            wanted = Need(
                input_tokens=self.random.randint(5, 50), output_tokens=self.random.randint(20, 200)
            )
            allowances = self.random.choice(self.mesh)
            try:
                held = await reserved(allowances, wanted, key=f"k{number}")
            except ResourceExhaustedError as error:
                tries += 1
                if error.retry_after is None or error.retry_after > 1:
                    return
                await asyncio.sleep(error.retry_after * self.random.uniform(0.5, 1))
                continue
            most = wanted.input_tokens + wanted.output_tokens
            self.under_way += most
            self.most = max(self.most, self.used + self.under_way)
            await asyncio.sleep(self.random.uniform(0, 0.02))
            written = self.random.randint(1, wanted.output_tokens)
            held.settle(Need(input_tokens=wanted.input_tokens, output_tokens=written))
            self.under_way -= most
            self.used += wanted.input_tokens + written
