"""Work that ends once begun, and numbers that grow."""

import asyncio

import pytest

from services.rpc.completion import done_before, to_completion
from services.rpc.errors import UnavailableError
from services.rpc.pulse import Pulse


async def test_work_ends_before_a_cancelled_caller_goes_on() -> None:
    """1. the caller is cancelled; 2. the work goes on; 3. the caller's cancellation comes after its end."""
    go_on, order = asyncio.Event(), []

    async def work() -> None:
        await go_on.wait()
        order.append("work")

    async def call() -> None:
        try:
            await to_completion(work())
        finally:
            order.append("caller")

    calling = asyncio.create_task(call())
    await asyncio.sleep(0)  # lets it begin
    calling.cancel()
    go_on.set()
    await asyncio.wait([calling])
    assert calling.cancelled()
    assert order == ["work", "caller"]


async def test_results_and_errors_pass() -> None:
    """Without cancellation it is as if the work were awaited."""

    async def fail() -> None:
        raise KeyError("x")

    assert await to_completion(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError):
        await to_completion(fail())


async def test_work_is_given_up_when_the_process_is_to_stop() -> None:
    """1. work that ends first is done, and its error is raised; 2. told to stop, it is cancelled and waited for."""
    stop = asyncio.Event()
    assert await done_before(stop, asyncio.create_task(asyncio.sleep(0)))

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await done_before(stop, asyncio.create_task(fail()))
    endless = asyncio.create_task(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(stop.set)
    assert not await done_before(stop, endless)
    assert endless.cancelled()


async def test_a_pulse_skips_to_the_newest() -> None:
    """A slow reader hears of the newest value only, and nobody waits for it."""
    pulse = Pulse(1)
    pulse.tell(2)
    pulse.tell(9)
    assert await pulse.wait_beyond(1) == 9
    waiting = [asyncio.create_task(pulse.wait_beyond(9)) for _ in range(2)]
    pulse.tell(10)
    assert await asyncio.gather(*waiting) == [10, 10]


async def test_a_closed_pulse_ends_all_waiting() -> None:
    """Who waits, and who comes later, is told that it is over."""
    pulse = Pulse(1)
    waiting = asyncio.create_task(pulse.wait_beyond(1))
    pulse.close()
    for wait in (waiting, pulse.wait_beyond(1)):
        with pytest.raises(UnavailableError):
            await wait
