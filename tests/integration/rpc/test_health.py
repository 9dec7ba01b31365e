"""The program that asks for health, as containers run it: with no package, against real servers."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.rpc import health
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer
from services.rpc.tcp_ports import free_port
from services.rpc.tls import PLAIN, Security
from tests.mesh_certificates import MeshCertificates

_PROGRAM = [sys.executable, "-I", "-S", health.__file__]


async def _started(address: str, security: Security = PLAIN) -> RpcServer:
    server = RpcServer(address=address, max_message_bytes=1 << 20, security=security)
    await server.start([])
    return server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RpcServer]:
    """On a unix socket; it doesn't serve yet."""
    started = await _started(f"unix:{tmp_path}/s.sock")
    yield started
    await started.stop(0)


async def _run(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode().strip(), err.decode()


async def test_who_serves_is_well(server: RpcServer) -> None:
    """Exit status and word follow the server's health, of all of it and of one service."""
    assert await _run(server.address) == (1, "NOT_SERVING", "")
    assert await _run(server.address, "--standby-ok") == (0, "NOT_SERVING", "")
    await server.set_health("", serving=True)
    assert await _run(server.address) == (0, "SERVING", "")
    await server.set_health("models/m/versions/1", serving=True)
    assert (await _run(server.address, "--service", "models/m/versions/1"))[0] == 0
    status, _, why = await _run(server.address, "--service", "models/m/versions/2")
    assert (status, why) == (1, f"{server.address}: the call was refused\n")


async def test_who_is_not_there_is_not_well() -> None:
    """Where nobody listens the answer is 1, with the reason."""
    status, said, why = await _run(f"127.0.0.1:{free_port()}", "--standby-ok")
    assert (status, said) == (1, "")
    assert "refused" in why


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
async def test_by_http(status: int, code: int) -> None:
    """An Envoy tells by HTTP whether it is ready."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert asked.startswith(b"GET /ready HTTP/1.1\r\n")
        writer.write(f"HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        assert (await _run(f"http://0.0.0.0:{port}/ready"))[0] == code


@pytest.mark.parametrize("kind", [PeerKind.SERVICE, PeerKind.WORKER])
async def test_over_tls(tmp_path: Path, kind: PeerKind) -> None:
    """It shows the process's own certificate, and asks nobody who is of another kind or another authority."""
    certificates = MeshCertificates.begin(tmp_path)
    server = await _started("127.0.0.1:0", certificates.security("own", kind))
    port = server.address.rpartition(":")[2]
    await server.set_health("", serving=True)
    try:
        own = str(tmp_path / "own")
        assert await _run(f"0.0.0.0:{port}", "--tls-dir", own) == (0, "SERVING", "")
        assert (await _run(server.address))[0] == 1  # plain
        foreign = MeshCertificates.begin(tmp_path / "foreign").issue("own", kind)
        assert (await _run(server.address, "--tls-dir", str(foreign)))[0] == 1
    finally:
        await server.stop(0)


@pytest.mark.parametrize("kind", [PeerKind.CLIENT, PeerKind.EDGE])
async def test_who_is_no_server_is_not_believed(tmp_path: Path, kind: PeerKind) -> None:
    """A certificate of ours is not enough: it must be one of a service or a worker."""
    certificates = MeshCertificates.begin(tmp_path)
    server = await _started("127.0.0.1:0", certificates.security("own", kind))
    await server.set_health("", serving=True)
    try:
        assert (await _run(server.address, "--tls-dir", str(tmp_path / "own")))[0] == 1
    finally:
        await server.stop(0)
