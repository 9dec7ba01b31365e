"""The front's life on a real socket: who may listen, who may connect, deadlines, the end."""

import asyncio
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from services.rpc.address import Address
from services.rpc.errors import InferplaneError, UnavailableError
from services.worker.adapters import grpc_status
from services.worker.adapters.http2_codec import Ngh2Codec
from services.worker.drivers.front import Front
from services.worker.ports.call import Call
from tests.unit.worker.front_client import Peer, framed


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        yield Path(name) / "run" / "f.sock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_there(path: Path) -> bool:
    return path.exists()


class Held:
    """Calls that wait for the test."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.gone: list[InferplaneError] = []
        self.came = asyncio.Event()

    def begin(self, call: Call, message: bytes) -> None:
        call.on_gone = self.gone.append
        self.calls.append(call)
        self.came.set()


def front(held: Held) -> Front:
    return Front(
        methods={b"/s/hold": held.begin},
        make_codec=Ngh2Codec,
        status_of=grpc_status.trailers_of,
        max_message_bytes=1 << 20,
    )


class Caller:
    """A client on a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.peer = reader, writer, Peer()

    def call(self, *more: tuple[bytes, bytes]) -> int:
        stream = self.peer.request(b"/s/hold", framed(b""), *more)
        self.writer.write(self.peer.session.data_to_send())
        return stream

    async def status(self, stream: int) -> int:
        """Read until the call has one; -2: the connection ended first."""
        async with asyncio.timeout(30):
            while self.peer.answers[stream].status < 0:
                data = await self.reader.read(1 << 16)
                if not data:
                    return -2
                self.peer.take(data)
        return self.peer.answers[stream].status


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()


async def test_the_socket_is_this_users_alone_and_gone_at_the_end(path: Path) -> None:
    """0600 in 0700; unlinked when stopped; stopping again is harmless."""
    made = front(Held())
    await made.start(Address(path=str(path)))
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    await made.stop(1)
    await made.stop(1)
    assert not is_there(path)


async def test_a_dead_socket_is_replaced_a_live_one_is_not(path: Path) -> None:
    """What a killed worker left behind keeps nobody; another process that listens does."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    held = Held()
    first = front(held)
    await first.start(Address(path=str(path)))
    with pytest.raises(UnavailableError, match="taken"):
        await front(Held()).start(Address(path=str(path)))
    async with connected(path) as caller:
        caller.call()
        await held.came.wait()
    await first.stop(1)


@pytest.fixture
def file(path: Path) -> Iterator[Path]:
    path.parent.mkdir()
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"


async def test_a_file_in_the_way_stays(file: Path) -> None:
    """Only sockets are replaced."""
    with pytest.raises(UnavailableError):
        await front(Held()).start(Address(path=str(file)))


async def test_strangers_are_sent_away(path: Path) -> None:
    """Whose user id is neither ours nor root's."""
    held = Held()
    made = front(held)
    made._desk.users = frozenset({os.getuid() + 1})
    await made.start(Address(path=str(path)))
    async with connected(path) as caller:
        stream = caller.call()
        with suppress(ConnectionError):
            assert await caller.status(stream) == -2
    assert not held.calls
    await made.stop(1)


async def test_a_deadline_is_kept_by_the_front_itself(path: Path) -> None:
    """The caller hears DEADLINE_EXCEEDED, the method that nobody waits."""
    held = Held()
    made = front(held)
    await made.start(Address(path=str(path)))
    async with connected(path) as caller:
        assert await caller.status(caller.call((b"grpc-timeout", b"50m"))) == 4
    assert [e.kind.name for e in held.gone] == ["DEADLINE_EXCEEDED"]
    assert made.running == 0
    await made.stop(1)


async def test_a_stop_finishes_what_runs(path: Path) -> None:
    """A call that is answered within the grace time has its answer."""
    held = Held()
    made = front(held)
    await made.start(Address(path=str(path)))
    async with connected(path) as caller:
        stream = caller.call()
        await held.came.wait()
        stopping = asyncio.create_task(made.stop(10))
        await asyncio.sleep(0)
        held.calls[0].reply(b"")
        assert await caller.status(stream) == 0
        await stopping
    assert made.connections == 0 or made.running == 0


async def test_a_stop_ends_what_does_not_end(path: Path) -> None:
    """After the grace time the connection is closed and the method told."""
    held = Held()
    made = front(held)
    await made.start(Address(path=str(path)))
    async with connected(path) as caller:
        stream = caller.call()
        await held.came.wait()
        await made.stop(0.05)
        assert await caller.status(stream) == -2
    assert len(held.gone) == 1
