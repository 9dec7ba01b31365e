"""The load generator against small real servers: what it counts, what it flags, from when it measures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks.generator.load import run
from benchmarks.generator.order import Order, Result

PATH = "/test.Echo/Call"


class Echo(grpc.GenericRpcHandler):
    """Answers a message with itself; `refuse` with a status, `short` with less."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        assert details.method == PATH
        return grpc.unary_unary_rpc_method_handler(self.call)

    async def call(self, message: bytes, context: Any) -> bytes:
        if message == b"refuse":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        return b"s" if message == b"short" else message


@asynccontextmanager
async def grpc_echo() -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def http_echo(pause: float = 0.0) -> AsyncIterator[str]:
    """Answers a body with itself, the first one after a pause; `refuse` with 429."""
    pauses = [pause]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(size)
                await asyncio.sleep(pauses.pop() if pauses else 0)
                status = b"429 Too Many Requests" if body == b"refuse" else b"200 OK"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, size) + body)
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def load(order: Order) -> Result:
    """In a thread, and over JSON both ways, as its own process would have it."""
    result = await asyncio.to_thread(run, Order.of_json(order.as_json()))
    return Result.of_json(result.as_json())


BODIES = (b"one", b"twice", b"three" * 1000)
LENGTHS = tuple(map(len, BODIES))


def grpc_order(address: str, **more: Any) -> Order:
    given = {"bodies": BODIES, "lengths": LENGTHS, "calls": 300, "in_flight": 64, **more}
    return Order(protocol="grpc", address=address, path=PATH, **given)


def http_order(address: str, **more: Any) -> Order:
    given = {"bodies": BODIES, "lengths": LENGTHS, "calls": 300, "in_flight": 16, **more}
    return Order(protocol="http", address=address, path="/", **given)


@pytest.mark.parametrize(
    ("echo", "order"),
    [
        pytest.param(grpc_echo, grpc_order, id="gRPC, more bytes in flight than a window"),
        pytest.param(http_echo, http_order, id="HTTP"),
    ],
)
async def test_counts_every_answer(echo: Any, order: Any) -> None:
    """So many calls, so many answers, each with the body of its own request."""
    async with echo() as address:
        result = await load(order(address))
    assert (result.answers, result.errors) == (300, {})
    assert {k.number for k in result.kept} == {0, 1, 2}
    assert all(k.body == BODIES[k.number] for k in result.kept)
    assert 0 < result.p50 <= result.p99 <= result.longest


async def test_flags_statuses_and_lengths_of_grpc() -> None:
    """A status other than OK and an answer of another length are errors, by name, and no answers."""
    async with grpc_echo() as address:
        bodies = (b"fine", b"refuse", b"short")
        result = await load(grpc_order(address, bodies=bodies, lengths=tuple(map(len, bodies))))
    assert result.answers == 100
    assert result.errors == {"grpc-status 8": 100, "1 bytes instead of 5": 100}


async def test_flags_statuses_and_lengths_of_http() -> None:
    """The same over HTTP/1.1."""
    async with http_echo() as address:
        result = await load(
            http_order(address, bodies=(b"fine", b"refuse", b"b"), lengths=(4, 6, 2))
        )
    assert result.answers == 100
    assert result.errors == {"HTTP 429": 100, "1 bytes instead of 2": 100}


async def test_an_open_loop_measures_from_when_a_call_was_due() -> None:
    """A pause of 0.3 s on the only connection is in the latency of the calls that were due meanwhile."""
    async with http_echo(pause=0.3) as address:
        order = http_order(address, calls=0, rate=200.0, connections=1, in_flight=1, seconds=1.0)
        result = await load(order)
    assert not result.errors
    assert result.longest > 0.29
    assert result.p90 > 0.1  # a third of the calls were due in the pause or behind it
    assert result.late_p99 > 0.2


async def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    """No answer within the time is an error of the load, not an endless wait."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(swallow, path):
        order = replace(http_order(f"unix:{path}"), timeout=0.2)
        with pytest.raises(TimeoutError, match="no answer"):
            await load(order)
