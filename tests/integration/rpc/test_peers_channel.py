"""A channel to several peers, over real servers: who gets calls, who doesn't, and what happens when that changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.rpc import channel, peer_addresses
from services.rpc.errors import UnavailableError
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer
from services.rpc.tcp_ports import free_port
from services.rpc.tls import PLAIN, Security
from tests.integration.rpc.names import Names
from tests.mesh_certificates import MeshCertificates

_SECONDS = 60.0  # until something that must come has come


class Peer:
    """A server that says who it is; asked to hold, it keeps a stream open until it stops."""

    def __init__(self, name: str, address: str, security: Security = PLAIN) -> None:
        self.name = name
        self.refuses = False
        self.held = asyncio.Event()
        self.server = RpcServer(address=address, max_message_bytes=1 << 20, security=security)
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Who": grpc.unary_unary_rpc_method_handler(self._who),
            "Hold": grpc.unary_stream_rpc_method_handler(self._hold),
        }
        self.server.grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test.Peer", methods),)
        )

    async def _who(self, _: bytes, __: object) -> bytes:
        if self.refuses:
            raise UnavailableError("stands by", reason="STANDBY")
        return self.name.encode()

    async def _hold(self, _: bytes, __: object) -> AsyncIterator[bytes]:
        yield self.name.encode()
        await self.held.wait()


@asynccontextmanager
async def peers(*addresses: str, security: Security = PLAIN) -> AsyncIterator[list[Peer]]:
    """Peers a, b, ... that listen; none serves yet."""
    async with AsyncExitStack() as stack:
        started = []
        for name, address in zip("abc", addresses, strict=False):
            peer = Peer(name, address, security)
            await peer.server.start(["test.Peer"])
            stack.push_async_callback(peer.server.stop, 0)
            started.append(peer)
        yield started


async def who(connected: grpc.aio.Channel) -> str:
    """Who answers a call."""
    method: Any = connected.unary_unary("/test.Peer/Who")
    answer: bytes = await method(b"", timeout=_SECONDS)
    return answer.decode()


async def answering(connected: grpc.aio.Channel) -> set[str]:
    """Who answers some calls."""
    return {await who(connected) for _ in range(6)}


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Try until the coroutine function's answer is true."""
    async with asyncio.timeout(_SECONDS):
        while not await holds():  # noqa: ASYNC110 - channels tell nothing of their peers
            await asyncio.sleep(0.01)


@pytest.fixture
def ports() -> list[int]:
    """Three free ones."""
    return [free_port() for _ in range(3)]


@pytest.fixture
def two(ports: Sequence[int]) -> str:
    """A list of two addresses."""
    return f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"


async def test_only_peers_that_serve_are_called(two: str) -> None:
    """A standby gets no call; it gets its share once it serves, and none when it no longer does."""
    async with peers(*two.split(",")) as (a, b), channel.connect(two, security=PLAIN) as connected:
        await b.server.set_health("", serving=True)
        assert await answering(connected) == {"b"}
        await a.server.set_health("", serving=True)
        await until(lambda: _is(connected, {"a", "b"}))
        await b.server.set_health("", serving=False)
        await until(lambda: _is(connected, {"a"}))


async def _is(connected: grpc.aio.Channel, names: set[str]) -> bool:
    return await answering(connected) == names


async def test_a_peer_that_refuses_is_passed_over(two: str) -> None:
    """UNAVAILABLE of one peer (it has just become a standby) is asked of the other; the caller sees nothing."""
    async with peers(*two.split(",")) as (a, b), channel.connect(two, security=PLAIN) as connected:
        for peer in (a, b):
            await peer.server.set_health("", serving=True)
        await until(lambda: _is(connected, {"a", "b"}))
        a.refuses = True
        assert [await who(connected) for _ in range(10)] == ["b"] * 10


async def test_a_stream_begins_again_elsewhere(two: str) -> None:
    """A stream whose peer dies fails at once with UNAVAILABLE, and opened again it is at the other peer."""
    async with peers(*two.split(",")) as (a, b), channel.connect(two, security=PLAIN) as connected:
        await a.server.set_health("", serving=True)
        hold: Any = connected.unary_stream("/test.Peer/Hold")
        stream = hold(b"")
        assert await stream.read() == b"a"
        await b.server.set_health("", serving=True)
        await a.server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stream.read()
        assert failed.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        again = hold(b"")
        assert await again.read() == b"b"
        b.held.set()


async def test_nobody_serves(two: str) -> None:
    """Where no peer serves calls end with UNAVAILABLE and don't wait for ever."""
    async with peers(*two.split(",")), channel.connect(two, security=PLAIN) as connected:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await who(connected)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_name_with_several_addresses(
    ports: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name's hosts are looked up again and again: calls follow to a host that is new, and leave one that is gone."""
    names, port = Names({"registry.test": ["127.0.0.2"]}), ports[0]
    monkeypatch.setattr(peer_addresses, "look_up", names.look_up)
    monkeypatch.setattr(peer_addresses, "_AGAIN_SECONDS", 0.02)
    trusting = Security(insecure_tcp=True)
    async with peers(f"127.0.0.2:{port}", f"127.0.0.3:{port}") as (a, b):
        for peer in (a, b):
            await peer.server.set_health("", serving=True)
        async with channel.connect(f"registry.test:{port}", security=trusting) as connected:
            assert await answering(connected) == {"a"}
            names.known["registry.test"] = ["127.0.0.3", "127.0.0.2"]
            await until(lambda: _is(connected, {"a", "b"}))
            names.known["registry.test"] = ["127.0.0.3"]
            await until(lambda: _is(connected, {"b"}))
            del names.known["registry.test"]  # and with nothing to be found all stays as it is
            asked = names.asked
            await until(lambda: _asked(names, asked + 2))
            assert await answering(connected) == {"b"}


async def _asked(names: Names, times: int) -> bool:
    return names.asked >= times


async def test_a_name_that_is_not_there_yet(
    ports: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may come up after its client: calls fail with UNAVAILABLE until its name is known."""
    names = Names({})
    monkeypatch.setattr(peer_addresses, "look_up", names.look_up)
    monkeypatch.setattr(peer_addresses, "_AGAIN_SECONDS", 0.02)
    address = f"metering.invalid:{ports[0]}"
    async with channel.connect(address, security=Security(insecure_tcp=True)) as connected:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await who(connected)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        async with peers(f"127.0.0.2:{ports[0]}") as (a,):
            await a.server.set_health("", serving=True)
            names.known["metering.invalid"] = ["127.0.0.2"]

            async def answers() -> bool:
                try:
                    return await who(connected) == "a"
                except grpc.aio.AioRpcError:
                    return False

            await until(answers)


async def test_several_peers_by_tls(two: str, tmp_path: Path) -> None:
    """Names in certificates are by kind, so one certificate is right at each of several peers; a new one too."""
    certificates = MeshCertificates.begin(tmp_path)
    served = certificates.security("registry", PeerKind.SERVICE)
    calling = certificates.security("worker", PeerKind.WORKER)
    async with peers(*two.split(","), security=served) as (a, b):
        for peer in (a, b):
            await peer.server.set_health("", serving=True)
        async with channel.connect(two, security=calling) as connected:
            await until(lambda: _is(connected, {"a", "b"}))
            certificates.issue("worker", PeerKind.WORKER)
            await until(lambda: _is(connected, {"a", "b"}))
