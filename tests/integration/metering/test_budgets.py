"""Budgets over the real service and its database: what workers let in, refuse, tell and give back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from inferplane.metering.v1 import budget_pb2, budget_service_pb2

from services.metering.ports.rates import Rates
from services.rpc import channel
from services.rpc.errors import ResourceExhaustedError, UnavailableError
from services.worker.domain.caller import Caller
from services.worker.domain.need import Need
from services.worker.drivers.allowance import Allowances
from services.worker.drivers.no_budgets import NOTHING_RESERVED
from tests.integration.metering.budget_world import (
    VERSION,
    Metering,
    make_budget,
    metering,
    reserved,
    status,
    stub,
    until,
    worker,
)
from tests.manual_clock import ManualClock

DAY = budget_pb2.BUDGET_WINDOW_DAY
MINUTE = budget_pb2.BUDGET_WINDOW_MINUTE


def tokens(amount: int, **other: Any) -> budget_pb2.Budget:
    return budget_pb2.Budget(tokens=amount, **{"window": DAY, **other})


def need(count: int) -> Need:
    return Need(output_tokens=count)


@dataclass
class World:
    """A service and one worker, on one clock that is moved by hand."""

    service: Metering
    people: grpc.aio.Channel
    worker: Allowances
    clock: ManualClock

    async def beat(self) -> None:
        """A beat passes, and the worker has exchanged."""
        seen = self.worker.counts.exchanges
        self.clock.advance(1.0)

        async def exchanged() -> bool:
            return self.worker.counts.exchanges > seen

        await until(exchanged)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(metering(tmp_path, clock))
        people = await stack.enter_async_context(channel.connect(service.address))
        allowances = await stack.enter_async_context(worker(service.address, "w1", clock=clock))
        ticking = asyncio.create_task(tick(clock))
        try:
            yield World(service, people, allowances, clock)
        finally:
            ticking.cancel()


async def tick(clock: ManualClock) -> None:
    """Exchanges that are asked for follow each other after a gap: time must pass a little for them."""
    while True:
        await asyncio.sleep(0.001)
        clock.advance(0.0005)


async def test_what_lies_idle_at_another_worker_is_waited_for(world: World) -> None:
    """One caller, in turn at two workers: nobody is refused what nobody uses."""
    await make_budget(world.people, tokens(120))
    async with worker(world.service.address, "w2", clock=world.clock) as other:
        for allowances in (world.worker, other):
            held = await reserved(allowances, need(54))
            held.settle(need(50))
        with pytest.raises(ResourceExhaustedError, match="120 tokens a day, 20 of them left"):
            await reserved(world.worker, need(54))
    assert (await status(world.people)).used == "100"


async def test_who_is_bound_by_nothing_never_waits_after_the_first_call(world: World) -> None:
    """1. the first call asks; 2. others of its project don't; 3. nor does anybody without a project."""
    assert await reserved(world.worker, need(5)) is NOTHING_RESERVED
    other = world.worker.reserve(Caller("acme", "another", "e"), VERSION, need(5))
    assert other is NOTHING_RESERVED
    assert world.worker.reserve(Caller(), VERSION, need(5)) is NOTHING_RESERVED
    mirrored = Caller("acme", "k", "e", is_shadow=True)
    assert world.worker.reserve(mirrored, VERSION, need(5)) is NOTHING_RESERVED
    assert world.worker.counts.waits == 1


async def test_a_refusal_says_which_budget_what_is_left_and_when_it_begins_anew(
    world: World,
) -> None:
    """And asking again within the beat costs no exchange."""
    await make_budget(world.people, tokens(100))
    (await reserved(world.worker, need(90))).settle(need(90))
    with pytest.raises(ResourceExhaustedError) as error:
        await reserved(world.worker, need(11))
    refusal = error.value
    assert refusal.reason == "BUDGET_EXHAUSTED"
    reset = int(refusal.metadata.pop("reset"))
    assert refusal.metadata == {
        "budget": "projects/acme/budgets/b",
        "unit": "tokens",
        "window": "day",
        "limit": "100",
        "remaining": "10",
        "needed": "11",
    }
    assert refusal.retry_after is not None
    assert reset == round(refusal.retry_after)
    assert 86_000 < reset <= 86_400
    waits = world.worker.counts.waits
    with pytest.raises(ResourceExhaustedError):
        world.worker.reserve(Caller("acme", "k", "e"), VERSION, need(11))
    assert world.worker.counts.waits == waits
    with pytest.raises(ResourceExhaustedError) as never:
        await reserved(world.worker, need(101))
    assert never.value.retry_after is None


async def test_what_was_not_used_is_free_again_and_at_rest_nothing_is_held(world: World) -> None:
    """1. more is set aside than used; 2. the rest serves others; 3. after a few beats nothing is held."""
    await make_budget(world.people, tokens(100))
    for _ in range(5):
        held = await reserved(world.worker, need(40))
        assert held.stop_after() is None
        held.settle(need(15))
        held.settle(need(40))
    headers = dict((await reserved(world.worker, need(25))).trailers())
    assert headers["x-ratelimit-limit-tokens"] == "100"
    assert headers["x-ratelimit-remaining-tokens"] == "0"
    (await reserved(world.worker, need(0))).release()

    async def is_at_rest() -> bool:
        await world.beat()
        found = await status(world.people)
        return (found.used, found.held) == ("75", "25")

    await until(is_at_rest)


async def test_a_new_budget_and_a_changed_one_reach_workers_within_a_beat(world: World) -> None:
    """Also a caller that was bound by nothing; a deleted one binds nobody any more."""
    assert await reserved(world.worker, need(5)) is NOTHING_RESERVED
    await make_budget(world.people, tokens(10))
    await world.beat()
    (await reserved(world.worker, need(10))).settle(need(10))
    with pytest.raises(ResourceExhaustedError):
        await reserved(world.worker, need(10))
    more = budget_pb2.Budget(name="projects/acme/budgets/b", tokens=25, window=DAY)
    await stub(world.people).UpdateBudget(budget_service_pb2.UpdateBudgetRequest(budget=more))
    await world.beat()
    (await reserved(world.worker, need(15))).settle(need(15))
    with pytest.raises(ResourceExhaustedError):
        await reserved(world.worker, need(1))
    await stub(world.people).DeleteBudget(
        budget_service_pb2.DeleteBudgetRequest(name="projects/acme/budgets/b")
    )
    await world.beat()
    assert await reserved(world.worker, need(1000)) is NOTHING_RESERVED


async def test_all_budgets_of_a_caller_bind_it_or_none(world: World) -> None:
    """A request that one of them refuses takes nothing of the others."""
    await make_budget(world.people, tokens(1000), name="all")
    await make_budget(world.people, tokens(100, key="k"), name="key")
    await make_budget(
        world.people, budget_pb2.Budget(requests=3, window=DAY, endpoint="e"), name="endpoint"
    )
    with pytest.raises(ResourceExhaustedError) as error:
        await reserved(world.worker, need(101))
    assert error.value.metadata["budget"] == "projects/acme/budgets/key"
    for _ in range(3):
        (await reserved(world.worker, need(10))).settle(need(10))
    with pytest.raises(ResourceExhaustedError) as error:
        await reserved(world.worker, need(10), key="another")
    assert error.value.metadata["budget"] == "projects/acme/budgets/endpoint"
    for _ in range(8):
        await world.beat()
    used = [(await status(world.people, name)).used for name in ("all", "key", "endpoint")]
    assert used == ["30", "30", "3"]


async def test_a_request_that_was_not_accepted_is_no_request(world: World) -> None:
    """Released, it counts for nothing, not even as one of so many requests."""
    await make_budget(world.people, budget_pb2.Budget(requests=1, window=DAY))
    (await reserved(world.worker, need(1))).release()
    (await reserved(world.worker, need(1))).settle(Need())
    with pytest.raises(ResourceExhaustedError):
        await reserved(world.worker, need(1))


async def test_a_caller_that_goes_while_it_waits_leaves_nothing_set_aside(world: World) -> None:
    """Before the answer, and just when it has come."""
    await make_budget(world.people, tokens(100))
    waits = world.worker.reserve(Caller("acme", "k", "e"), VERSION, need(100))
    assert isinstance(waits, Awaitable)
    gone = asyncio.ensure_future(waits)
    await asyncio.sleep(0)
    (waiter,) = world.worker.waiting
    async with asyncio.timeout(60):
        while not waiter.future.done():  # noqa: ASYNC110 - the very turn of the loop is meant
            await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    (await reserved(world.worker, need(100))).settle(need(100))


async def test_a_shadow_budget_counts_and_refuses_nothing(world: World) -> None:
    """What would have been refused is counted."""
    await make_budget(world.people, tokens(100, shadow=True))
    for _ in range(3):
        (await reserved(world.worker, need(60))).settle(need(60))
        await world.beat()
    found = await status(world.people)
    assert (found.used, found.held, found.remaining) == ("180", "0", "0")
    assert found.refused == 2
    assert world.worker.counts.shadow_refused == 2


async def test_money_is_charged_at_the_version_s_prices(world: World) -> None:
    """Prices come with the exchange; those of the request's beginning count until its end."""
    world.service.rates.now = Rates(request=10**12, output_token=10**11)
    await make_budget(world.people, budget_pb2.Budget(money="3.5", window=DAY))
    held = await reserved(world.worker, need(10))
    with pytest.raises(ResourceExhaustedError) as error:
        await reserved(world.worker, need(6))
    assert error.value.metadata["needed"] == "1.6"
    held.settle(need(5))
    (await reserved(world.worker, need(10))).settle(need(10))
    for _ in range(8):
        await world.beat()
    assert (await status(world.people)).used == "3.5"


async def test_a_stream_that_may_be_stopped_takes_what_there_is(world: World) -> None:
    """1. less than it may need is left; 2. it begins with that; 3. more becomes free and it goes on longer."""
    await make_budget(world.people, tokens(100, stop_streams=True))
    first = await reserved(world.worker, need(70))
    assert first.stop_after() is None
    second = await reserved(world.worker, Need(input_tokens=10, output_tokens=50))
    assert second.stop_after() == 20
    first.settle(need(45))
    assert second.stop_after() == 45
    second.settle(Need(input_tokens=10, output_tokens=45))
    with pytest.raises(ResourceExhaustedError):
        await reserved(world.worker, Need(input_tokens=10, output_tokens=50))


async def test_a_window_begins_anew(world: World) -> None:
    """What runs over its end is charged to the window in which it began."""
    await make_budget(world.people, tokens(100, window=MINUTE))
    over = await reserved(world.worker, need(100))
    for _ in range(61):
        await world.beat()
    (await reserved(world.worker, need(100))).settle(need(40))
    over.settle(need(90))
    for _ in range(8):
        await world.beat()
    found = await status(world.people)
    assert (found.used, found.held) == ("40", "0")


async def test_alerts_are_given_as_workers_report(world: World) -> None:
    """Once, when so much was used."""
    await make_budget(world.people, tokens(100, alert_percents=[50, 90]))
    for _ in range(3):
        (await reserved(world.worker, need(20))).settle(need(20))
        await world.beat()
    assert [(alert.percent, alert.used) for alert in world.service.alerts] == [(50, 60)]


@pytest.mark.parametrize("failure", ["open", "closed"])
async def test_without_metering_leases_last_and_then_the_setting_decides(
    tmp_path: Path, failure: Any
) -> None:
    """1. metering stops; 2. what was leased serves; 3. leases end; 4. open: let in, told later; closed: refused."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        ticking = asyncio.create_task(tick(clock))
        stack.callback(ticking.cancel)
        first = AsyncExitStack()
        service = await first.enter_async_context(metering(tmp_path, clock))
        people = await stack.enter_async_context(channel.connect(service.address))
        await make_budget(people, tokens(100))
        one = await stack.enter_async_context(
            worker(service.address, "w1", failure=failure, clock=clock)
        )
        (await reserved(one, need(10))).release()
        await first.aclose()
        served = await reserved(one, need(10))
        clock.advance(11)
        if failure == "closed":
            with pytest.raises(UnavailableError) as error:
                await reserved(one, need(10))
            assert error.value.reason == "METERING_UNAVAILABLE"
            served.settle(need(10))
        else:
            (await reserved(one, need(150))).settle(need(150))
            unknown = await reserved(one, need(10), key="never seen")
            assert unknown is NOTHING_RESERVED
            served.settle(need(10))
            assert one.counts.unmetered == 2
        await stack.enter_async_context(metering(tmp_path, clock))
        used = "160" if failure == "open" else "10"

        async def is_told() -> bool:
            clock.advance(1)
            return (await status(people)).used == used

        await until(is_told)


async def test_a_worker_that_dies_takes_only_what_it_did_not_report(tmp_path: Path) -> None:
    """1. it dies with a lease; 2. metering is restarted; 3. its lease ends; 4. all but what it held serves others."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        ticking = asyncio.create_task(tick(clock))
        stack.callback(ticking.cancel)
        first = AsyncExitStack()
        service = await first.enter_async_context(metering(tmp_path, clock))
        people = await stack.enter_async_context(channel.connect(service.address))
        await make_budget(people, tokens(1000))
        async with worker(service.address, "dies", clock=clock, dies=True) as one:
            await reserved(one, need(300))
        await first.aclose()
        await stack.enter_async_context(metering(tmp_path, clock))
        other = await stack.enter_async_context(worker(service.address, "lives", clock=clock))
        held = int((await status(people)).held)
        assert 300 <= held < 1000
        clock.advance(10)

        async def has_ended() -> bool:
            clock.advance(1)
            found = await status(people)
            return (found.held, found.unreported) == ("0", str(held))

        await until(has_ended)

        async def is_renewed() -> bool:
            return other.renewed_until > clock.monotonic() + 5

        await until(is_renewed)
        (await reserved(other, need(1000 - held))).settle(need(1000 - held))
        with pytest.raises(ResourceExhaustedError):
            await reserved(other, need(1))
