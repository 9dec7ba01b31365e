"""What a project spends is told once a month for each threshold, and a webhook hears of it until it takes it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from services.metering.adapters.http_webhook import HttpWebhook
from services.metering.adapters.sql_alerts import SqlAlerts
from services.metering.domain.spending import AlertInput, Notice, checked_alert
from services.metering.domain.unit import Unit
from services.metering.drivers.spending import Spending
from services.rpc.errors import NotFoundError, ResourceExhaustedError
from services.rpc.postgres import Target
from tests.contract.metering.ledger_world import KNOWN, LedgerWorld, opened
from tests.metering_usage import Told, batch_of

NAME = "projects/acme/spendingAlerts/monthly"
SECONDS = 60.0


@dataclass
class Hook:
    """A webhook on loopback: answers what is next, at the end always 204."""

    answers: list[int] = field(default_factory=list)
    heard: asyncio.Queue[tuple[str, dict[str, object]]] = field(default_factory=asyncio.Queue)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.answers.pop(0) if self.answers else 204
        writer.write(
            f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()
        self.heard.put_nowait((headers["idempotency-key"], json.loads(body)))


@asynccontextmanager
async def hook(*answers: int) -> AsyncIterator[Hook]:
    own = Hook(list(answers))
    server = await asyncio.start_server(own.serve, "127.0.0.1", 0)
    async with server:
        own.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        yield own


@pytest.fixture
async def world(ledger: Path | Target) -> AsyncIterator[LedgerWorld]:
    async with opened(ledger) as world:
        await world.price(Unit.OUTPUT_TOKEN, "0.5")
        yield world


@asynccontextmanager
async def watching(
    world: LedgerWorld, metrics: CollectorRegistry | None = None
) -> AsyncIterator[Spending]:
    """The watch at work."""
    metrics = metrics or CollectorRegistry()
    async with httpx.AsyncClient(trust_env=False) as client:
        store, webhook = SqlAlerts(world.database), HttpWebhook(client, "USD")
        spending = Spending(store, webhook, KNOWN, world.clock, metrics=metrics)
        await spending.load()
        running = asyncio.create_task(spending.run())
        try:
            yield spending
        finally:
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled(), running.exception()


def alert(webhook: str = "", amount: str = "10") -> AlertInput:
    return AlertInput(name=NAME, monthly_amount=amount, percents=[50, 100], webhook=webhook)


async def spend(world: LedgerWorld, spending: Spending, first: int, tokens: int) -> None:
    told = Told(request=first, numbers={"output_tokens": tokens})
    recorded = await world.record(batch_of([told], first=first))
    spending.spent(recorded.spent)


async def notices(spending: Spending, count: int) -> list[Notice]:
    """So many notices; waits until they are there."""
    async with asyncio.timeout(SECONDS):
        while len(found := await spending.notices("acme", 0, 100)) < count:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    return list(found)


async def test_each_threshold_is_told_once(world: LedgerWorld) -> None:
    """However often it is passed, and also after a restart."""
    async with watching(world) as spending:
        await spending.set_alert(alert())
        await spend(world, spending, 0, 9)
        assert await spending.notices("acme", 0, 100) == []
        await spend(world, spending, 1, 2)
        (half,) = await notices(spending, 1)
        assert (half.percent, half.name) == (50, f"{NAME}/notices/2026-11-50")
        await spend(world, spending, 2, 1)
        await spend(world, spending, 3, 8)
        assert [notice.percent for notice in await notices(spending, 2)] == [100, 50]
    async with watching(world) as spending:
        await spend(world, spending, 4, 50)
        await spending.set_alert(alert(amount="11"))
        assert len(await notices(spending, 2)) == 2


async def test_what_a_dead_process_had_to_tell_is_told(world: LedgerWorld) -> None:
    """Usage was recorded, and the process died before it looked: the next one tells."""
    async with watching(world) as spending:
        await spending.set_alert(alert())
    await world.record(batch_of([Told(request=1, numbers={"output_tokens": 30})]))
    async with watching(world) as spending:
        assert len(await notices(spending, 2)) == 2


async def test_a_webhook_hears_until_it_takes_it(world: LedgerWorld) -> None:
    """Failing answers are followed by further tries with the same key, also later and by another process."""
    async with hook(500, 503, 500, 429) as listener:
        async with watching(world) as spending:
            await spending.set_alert(alert(listener.url))
            await spend(world, spending, 0, 10)
            async with asyncio.timeout(SECONDS):
                heard = [await listener.heard.get() for _ in range(3)]
            assert heard[0][1]["percent"] == 50
            assert heard[0][1]["spent"] == "5"
        async with watching(world) as spending:
            async with asyncio.timeout(SECONDS):
                again = [await listener.heard.get() for _ in range(2)]
                while (await spending.notices("acme", 0, 1))[0].deliver_us is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert {key for key, _ in [*heard, *again]} == {heard[0][0]}


async def test_notices_go_to_the_present_webhook(world: LedgerWorld) -> None:
    """One is dead; another takes its place, and hears what the dead one did not take."""
    async with hook(*[500] * 1000) as dead, hook() as alive, watching(world) as spending:
        await spending.set_alert(alert(dead.url))
        await spend(world, spending, 0, 10)
        async with asyncio.timeout(SECONDS):
            key, _ = await dead.heard.get()
            await spending.set_alert(alert(alive.url))
            assert (await alive.heard.get())[0] == key
            while (await spending.notices("acme", 0, 1))[0].deliver_us is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("reason", ["old", "no webhook", "no alert"])
async def test_notices_are_given_up(world: LedgerWorld, reason: str) -> None:
    """After a day, or once nobody wants them: counted, and not sent again."""
    metrics = CollectorRegistry()
    async with hook(*[500] * 1000) as dead, watching(world, metrics) as spending:
        await spending.set_alert(alert(dead.url))
        await spend(world, spending, 0, 10)
        async with asyncio.timeout(SECONDS):
            await dead.heard.get()
            match reason:
                case "old":
                    world.clock.advance(25 * 3600)
                case "no webhook":
                    await spending.set_alert(alert())
                case _:
                    await spending.delete_alert(NAME)
            while not metrics.get_sample_value("inferplane_spending_notices_given_up_total"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        store = SqlAlerts(world.database)
        assert await store.undelivered(0, 10) == []
        assert await store.give_up(2**62) == ()
        (notice,) = await spending.notices("acme", 0, 10)
        assert notice.deliver_us is None


async def test_alerts_of_a_project_are_so_many_at_most(world: LedgerWorld) -> None:
    """Two that are set at once can't both be the last one; those that are there may be changed."""
    store = SqlAlerts(world.database)
    wanted = [
        checked_alert(replace(alert(), name=f"projects/acme/spendingAlerts/a{number}"), number)
        for number in range(4)
    ]
    done = await asyncio.gather(*(store.put(one, 3) for one in wanted), return_exceptions=True)
    assert [isinstance(one, ResourceExhaustedError) for one in done].count(True) == 1
    there = await store.alerts("acme")
    assert len(there) == 3
    assert await store.put(there[0], 3) == there[0]


async def test_a_project_that_is_not_there_has_no_alerts(world: LedgerWorld) -> None:
    """It is named."""
    async with watching(world) as spending:
        with pytest.raises(NotFoundError) as caught:
            await spending.set_alert(replace(alert(), name="projects/nowhere/spendingAlerts/a"))
        assert caught.value.metadata["resource"] == "projects/nowhere"
        assert list(await spending.alerts("")) == []


async def test_alerts_are_listed_changed_and_deleted(world: LedgerWorld) -> None:
    """Setting it again changes it; what isn't there can't be deleted."""
    async with watching(world) as spending:
        await spending.set_alert(alert())
        changed = await spending.set_alert(alert(amount="20"))
        assert list(await spending.alerts("acme")) == list(await spending.alerts("")) == [changed]
        await spending.delete_alert(NAME)
        assert list(await spending.alerts("acme")) == []
        with pytest.raises(NotFoundError):
            await spending.delete_alert(NAME)
