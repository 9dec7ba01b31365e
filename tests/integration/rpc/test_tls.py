"""TLS between services: who is let in, who is believed, and that nobody notices new certificates."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.cli.adapters import ca
from services.rpc import peers
from services.rpc.channel import connect
from services.rpc.errors import FailedPreconditionError
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer
from services.rpc.tls import AUTHORITIES, CERTIFICATE, PLAIN, Security, TlsFiles
from tests.mesh_certificates import MeshCertificates, client_context, serial_at

_CHECK = health_pb2.HealthCheckRequest()


@dataclass(frozen=True, slots=True)
class Served:
    """A service that workers and services may call."""

    server: RpcServer
    certificates: MeshCertificates

    def channel(self, name: str, kind: PeerKind) -> grpc.aio.Channel:
        """Of a peer with a certificate of this kind."""
        return connect(self.server.address, security=self.certificates.security(name, kind))

    def serial(self) -> str:
        """What a new connection is shown."""
        context = client_context(self.certificates.folder / "peer")
        return serial_at(self.server.address, context, PeerKind.SERVICE.server_name)


async def _start(security: Security) -> RpcServer:
    address = "127.0.0.1:0"
    allowed = {PeerKind.WORKER, PeerKind.SERVICE}
    server = RpcServer(
        address=address,
        max_message_bytes=1 << 20,
        security=security,
        guard=peers.guard(address, security, allowed),
    )
    await server.start([])
    await server.set_health("", serving=True)
    return server


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """It listens on loopback."""
    certificates = MeshCertificates.begin(tmp_path)
    server = await _start(certificates.security("own", PeerKind.SERVICE))
    yield Served(server, certificates)
    await server.stop(0)


async def _check(channel: grpc.aio.Channel) -> Any:
    return await health_pb2_grpc.HealthStub(channel).Check(_CHECK, timeout=30)


async def _refusal(channel: grpc.aio.Channel) -> grpc.StatusCode:
    async with channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await _check(channel)
    return raised.value.code()


async def test_new_certificates_cost_no_call(served: Served) -> None:
    """Calls and a stream go on while both sides' certificates and the authority's key are replaced."""
    authority, seen = served.certificates.authority, set()
    async with served.channel("peer", PeerKind.WORKER) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch: Any = stub.Watch(_CHECK)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        for act in (
            lambda: authority.renew(ca.now()),
            lambda: authority.add_key(10, None, ca.now()),
            lambda: authority.renew(ca.now()),
            authority.retire,
        ):
            act()
            for _ in range(20):
                await _check(channel)
            seen.add(await asyncio.to_thread(served.serial))
        assert seen >= {served.certificates.record("own").serial}
        assert len(seen) == 2  # one of each renewal: a change of trust shows nothing new
        await served.server.set_health("", serving=False)
        async with asyncio.timeout(60):
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


async def test_what_an_old_key_signed_is_refused_once_it_is_retired(served: Served) -> None:
    """After the overlap a certificate that was not issued anew opens no connection."""
    authority, folder = served.certificates.authority, served.certificates.folder
    served.certificates.issue("old", PeerKind.WORKER)
    kept = {p.name: p.read_bytes() for p in (folder / "old").iterdir() if p.suffix == ".pem"}
    authority.add_key(10, None, ca.now())
    authority.renew(ca.now())
    authority.retire()
    copy = folder / "copy"
    copy.mkdir()
    for name, content in kept.items():
        (copy / name).write_bytes(content)
    (copy / AUTHORITIES).write_bytes((folder / "own" / AUTHORITIES).read_bytes())
    channel = connect(served.server.address, security=Security(TlsFiles(copy)))
    assert await _refusal(channel) is grpc.StatusCode.UNAVAILABLE


async def test_wrong_kind_is_told_so(served: Served) -> None:
    """Who has a certificate of ours, and not one that may call, is PERMISSION_DENIED."""
    for kind in (PeerKind.EDGE, PeerKind.CLIENT):
        code = await _refusal(served.channel("peer", kind))
        assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_strangers_get_no_connection(served: Served, tmp_path_factory: Any) -> None:
    """Another authority's certificate, one that has ended, none at all, and plain text are refused."""
    foreign = MeshCertificates.begin(tmp_path_factory.mktemp("foreign"))
    foreign.issue("peer", PeerKind.WORKER)
    own = served.certificates.folder / "own"
    peer = foreign.folder / "peer"
    copy = tmp_path_factory.mktemp("copy")
    for name in ("cert.pem", "key.pem"):
        (copy / name).write_bytes((peer / name).read_bytes())
    (copy / AUTHORITIES).write_bytes((own / AUTHORITIES).read_bytes())
    ended = served.certificates.issue("late", PeerKind.WORKER, ago=dt.timedelta(days=2))
    address = served.server.address
    for folder in (copy, ended):
        channel = connect(address, security=Security(TlsFiles(folder)))
        assert await _refusal(channel) is grpc.StatusCode.UNAVAILABLE
    nameless = grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials((own / AUTHORITIES).read_bytes()),
        options=[("grpc.ssl_target_name_override", PeerKind.SERVICE.server_name)],
    )
    assert await _refusal(nameless) is grpc.StatusCode.UNAVAILABLE
    assert await _refusal(connect(address)) is grpc.StatusCode.UNAVAILABLE


async def test_nobody_passes_for_a_service(tmp_path: Path) -> None:
    """A client talks to nobody whose certificate is a worker's, wherever it listens."""
    certificates = MeshCertificates.begin(tmp_path)
    server = await _start(certificates.security("own", PeerKind.WORKER))
    channel = connect(server.address, security=certificates.security("peer", PeerKind.WORKER))
    assert await _refusal(channel) is grpc.StatusCode.UNAVAILABLE
    await server.stop(0)


async def test_plain_tcp_beyond_this_machine_is_refused() -> None:
    """Neither a server nor a client does it, unless it is asked for."""
    server = RpcServer(address="0.0.0.0:0", max_message_bytes=1 << 20, security=PLAIN)
    with pytest.raises(FailedPreconditionError) as raised:
        await server.start([])
    assert raised.value.reason == "INSECURE_ADDRESS"
    await server.stop(0)
    with pytest.raises(FailedPreconditionError):
        connect("192.0.2.1:80", security=PLAIN)
    asked = Security(insecure_tcp=True)
    async with connect("192.0.2.1:80", security=asked):
        pass


def test_a_broken_set_changes_nothing(tmp_path: Path) -> None:
    """Files that don't belong together leave what was read before; the next good set is taken."""
    certificates = MeshCertificates.begin(tmp_path)
    folder = certificates.issue("own", PeerKind.SERVICE)
    files = TlsFiles(folder)
    first = files.current()
    certificate = (folder / CERTIFICATE).resolve()
    kept = certificate.read_bytes()
    certificate.write_bytes(b"-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    assert files.current() is first
    certificate.write_bytes(kept)
    certificates.issue("own", PeerKind.SERVICE)
    assert files.current().certificate != first.certificate
