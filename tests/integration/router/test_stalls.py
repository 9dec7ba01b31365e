"""Callers and workers that stop in the middle hold nothing for long; slow ones are not mistaken for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.router.domain.topology import Endpoint, Target
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest
from tests.integration.router.waiting import until

_STALL = 1.0  # seconds


@pytest.fixture
async def served(folder: Path) -> AsyncIterator[EdgeUnderTest]:
    """An endpoint with one worker, behind an edge that gives up stalled requests soon."""
    edge = await EdgeUnderTest.start(folder, stall_seconds=_STALL)
    worker = await edge.add_worker("w", V1)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_workers({worker.address: {V1}})
    await edge.in_sync()
    yield edge
    for call in edge.workers:
        if call.hold is not None:
            call.hold.set()
    await edge.stop()


async def test_a_body_that_stops_is_given_up(served: EdgeUnderTest) -> None:
    """Half a body and then nothing: the caller is told 408 within the time, and the connection is its only cost."""
    host, _, port = served.settings.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v2/models/digits/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{"
    )
    async with asyncio.timeout(10 * _STALL):
        head = await reader.readuntil(b"\r\n")
    assert head.split()[1] == b"408"
    writer.close()


async def test_computing_is_not_stalling(served: EdgeUnderTest) -> None:
    """A call that computes for longer than that is answered, by gRPC and by REST."""
    (worker,) = served.workers
    worker.hold = asyncio.Event()
    grpc_call = asyncio.ensure_future(served.infer(timeout=30))
    rest_call = asyncio.ensure_future(served.http("POST", "/v2/models/digits/infer", b"{}"))
    await until(lambda: worker.calls.total() == 2)
    loop = asyncio.get_running_loop()
    released = loop.create_future()
    loop.call_later(3 * _STALL, released.set_result, None)
    await released
    assert not grpc_call.done()
    assert not rest_call.done()
    worker.hold.set()
    await grpc_call
    status, _, answer = await rest_call
    assert status == 200, answer
