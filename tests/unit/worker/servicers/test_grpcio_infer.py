"""ModelInfer over grpcio, without a server: calls that come together, callers that go, errors."""

import asyncio
from typing import Any, cast

import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.counters import Outcome
from services.worker.servicers.call import Context
from services.worker.servicers.grpcio_infer import GrpcioInfer
from tests.unit.worker.servicers.fast_desk import Desk, desk, request


class CallContext:
    """What is asked of `grpc.aio.ServicerContext`."""

    def __init__(self, seconds: float | None = None, **headers: str) -> None:
        self._seconds = seconds
        self._headers = tuple((k.replace("_", "-"), v) for k, v in headers.items())

    def invocation_metadata(self) -> Any:
        return self._headers

    def time_remaining(self) -> float | None:
        return self._seconds


def context(seconds: float | None = None, **headers: str) -> Context:
    return cast(Context, CallContext(seconds, **headers))


def message(k: int = 0) -> bytes:
    return request(k=k).SerializeToString()


async def test_answers_are_those_of_the_front() -> None:
    """Known form or not."""
    async with desk() as ours, desk(restless=True) as front:
        infer = GrpcioInfer(ours.inference).infer
        for k in range(4):
            expected = await front.answers([message(k)])
            assert [await infer(message(k), context())] == expected
        ours.check_idle()


async def test_calls_that_come_one_by_one_share_a_run() -> None:
    """Each some turns of the loop after the one before."""
    async with desk(max_rows=32) as ours:
        infer = GrpcioInfer(ours.inference).infer
        await infer(message(), context())
        before = ours.statistics.runs

        async def later(turns: int) -> bytes:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await infer(message(), context())

        answers = await asyncio.gather(*(later(3 * n) for n in range(10)))
        assert len(set(answers)) == 1
        assert ours.statistics.runs < before + 10


async def test_errors_are_raised() -> None:
    """For the one place that makes statuses of them."""
    async with desk() as ours:
        infer = GrpcioInfer(ours.inference).infer
        with pytest.raises(InvalidArgumentError, match="negative"):
            await infer(message(-1), context())
        with pytest.raises(InvalidArgumentError, match="bytes are not"):
            await infer(b"\xff", context())
        ours.check_idle()


@pytest.mark.parametrize("turns", [0, 1, 5, 10, 12])
async def test_a_caller_that_goes_leaves_nothing(turns: int) -> None:
    """Whether it was still gathered, waited, or had just been answered."""
    async with desk() as ours:
        infer = GrpcioInfer(ours.inference).infer
        await infer(message(), context())
        call = asyncio.ensure_future(infer(message(), context()))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert await infer(message(), context())
        ours.check_idle()
        assert ended(ours) <= 3
        assert ours.statistics.outcomes[Outcome.FAILED].count == 0


async def test_routes_have_heads_of_their_own() -> None:
    """What is known of a form on one route is not taken for another's."""
    async with desk() as ours:
        infer = GrpcioInfer(ours.inference).infer
        for headers in ({}, {"x_inferplane_project": "p"}, {"x_inferplane_endpoint": "e"}):
            before = ours.shelf.lookups
            for _ in range(4):
                await infer(message(), context(5.0, **headers))
            assert ours.shelf.lookups == before + 2


def ended(at: Desk) -> int:
    return sum(span.count for span in at.statistics.outcomes.values())
