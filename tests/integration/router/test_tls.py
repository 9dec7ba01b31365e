"""TLS at the edge and from the edge to workers: who is refused, and that nobody notices new certificates."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub

from services.cli.adapters import ca
from services.router.domain.topology import Endpoint, Target
from services.router.resources.edge import ClientCertificate
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY, Security
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest
from tests.integration.router.load import callers
from tests.integration.router.waiting import until
from tests.mesh_certificates import MeshCertificates, client_context, serial_at


@dataclass(slots=True)
class TlsMesh:
    """An edge with TLS on both sides, and one worker behind it."""

    edge: EdgeUnderTest
    certificates: MeshCertificates
    channel: grpc.aio.Channel

    @property
    def folder(self) -> Path:
        return self.certificates.folder

    async def infer(self) -> Any:
        """One call over the channel."""
        stub = GRPCInferenceServiceStub(self.channel)
        return await stub.ModelInfer(oip.ModelInferRequest(model_name="digits"), timeout=30)

    async def infer_anew(self) -> Any:
        """One call over a connection of its own, with what lies in the client's folder now."""
        async with secure_channel(self.edge, self.folder / "client") as channel:
            stub = GRPCInferenceServiceStub(channel)
            return await stub.ModelInfer(oip.ModelInferRequest(model_name="digits"), timeout=30)

    def serial(self, name: str = "client", *, shows: bool = True) -> str:
        """What a new connection to the edge is shown."""
        context = client_context(self.folder / name, shows=shows)
        return serial_at(self.edge.settings.address, context)

    async def shows_newest(self) -> bool:
        """Whether a new connection is shown the newest certificate."""
        return await asyncio.to_thread(self.serial) == self.certificates.record("edge").serial


def secure_channel(edge: EdgeUnderTest, folder: Path) -> grpc.aio.Channel:
    """To the edge, with the certificate of a folder."""
    credentials = grpc.ssl_channel_credentials(
        *((folder / name).read_bytes() for name in (AUTHORITIES, KEY, CERTIFICATE))
    )
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(edge.settings.address, credentials, options=options)


async def start(
    folder: Path, asks: ClientCertificate, worker: PeerKind = PeerKind.WORKER
) -> TlsMesh:
    """A mesh whose worker has a certificate of this kind."""
    certificates = MeshCertificates.begin(folder)
    own = certificates.issue("edge", PeerKind.EDGE)
    client = certificates.issue("client", PeerKind.CLIENT)
    edge = await EdgeUnderTest.start(
        folder,
        certificate=str(own / CERTIFICATE),
        key=str(own / KEY),
        client_ca=str(own / AUTHORITIES),
        client_certificate=asks,
        tls_dir=str(own),
    )
    echo = await edge.add_worker("w0", V1, security=certificates.security("w0", worker))
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_workers({echo.address: {V1}})
    await edge.in_sync()
    return TlsMesh(edge, certificates, secure_channel(edge, client))


async def stop(mesh: TlsMesh) -> None:
    """End it."""
    await mesh.channel.close()
    await mesh.edge.stop()


@pytest.fixture
async def mesh(folder: Path) -> AsyncIterator[TlsMesh]:
    """Clients must show a certificate."""
    mesh = await start(folder, ClientCertificate.REQUIRED)
    yield mesh
    await stop(mesh)


@pytest.fixture
async def open_mesh(folder: Path) -> AsyncIterator[TlsMesh]:
    """Clients may show a certificate."""
    mesh = await start(folder, ClientCertificate.OPTIONAL)
    yield mesh
    await stop(mesh)


async def test_calls_pass_by_tls_on_both_sides(mesh: TlsMesh) -> None:
    """A call reaches a worker on TCP, and says that it comes from the edge."""
    response = await mesh.infer()
    assert response.parameters["worker"].string_param == "w0"
    assert await mesh.edge.envoy.counter(f"cluster.{V1}.ssl.handshake") > 0


async def test_new_certificates_cost_no_call(mesh: TlsMesh) -> None:
    """All certificates, then the authority's key, are replaced under calls on old and new connections and a stream."""
    asked: asyncio.Queue[oip.ModelInferRequest | None] = asyncio.Queue()

    async def requests() -> AsyncIterator[Any]:
        while (request := await asked.get()) is not None:
            yield request

    stream: Any = GRPCInferenceServiceStub(mesh.channel).ModelStreamInfer(requests())

    async def echo(text: str) -> str:
        asked.put_nowait(oip.ModelInferRequest(model_name="digits", id=text))
        async with asyncio.timeout(60):
            return str((await stream.read()).infer_response.id)

    assert await echo("before") == "before"
    authority, first = mesh.certificates.authority, mesh.serial()
    async with callers(mesh, 2) as outcome, callers(_Anew(mesh), 2) as anew:
        authority.renew(ca.now())
        await until(mesh.shows_newest)
        await anew.more(20)
        old_client = _copied(mesh.folder / "client", mesh.folder / "old-client")
        signer = authority.add_key(10, None, ca.now())
        await until(lambda: _knows(mesh, signer.serial))
        authority.renew(ca.now())
        await until(mesh.shows_newest)
        await anew.more(20)
        # A worker that trusts the new key alone, and shows what it signed, is reached by new connections.
        authority.retire()
        added = await mesh.edge.add_worker(
            "w1", V1, security=mesh.certificates.security("w1", PeerKind.WORKER)
        )
        mesh.edge.set_workers({w.address: {V1} for w in mesh.edge.workers})
        await until(lambda: added.calls.total() > 0)
        await until(lambda: _is_refused(mesh, old_client))
        await outcome.more(50)
        await anew.more(20)
        assert await echo("after") == "after"
    asked.put_nowait(None)
    assert (outcome.failures, anew.failures) == ({}, {})
    assert mesh.serial() == mesh.certificates.record("edge").serial != first


class _Anew:
    """Each call on a connection of its own."""

    def __init__(self, mesh: TlsMesh) -> None:
        self._mesh = mesh

    async def infer(self) -> Any:
        return await self._mesh.infer_anew()


def _copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for name in (AUTHORITIES, CERTIFICATE, KEY):
        (target / name).write_bytes((folder / name).read_bytes())
    return target


async def _knows(mesh: TlsMesh, authority: str) -> bool:
    """Whether Envoy has read this authority for both sides."""
    shown = (await mesh.edge.envoy.ask("/certs")).upper().replace(":", "")
    return shown.count(authority.lstrip("0")) >= 2


async def _is_refused(mesh: TlsMesh, folder: Path) -> bool:
    context = client_context(folder)
    context.load_verify_locations(mesh.folder / "edge" / AUTHORITIES)
    try:
        await asyncio.to_thread(serial_at, mesh.edge.settings.address, context)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


async def test_clients_without_a_good_certificate_are_refused(
    mesh: TlsMesh, tmp_path: Path
) -> None:
    """None, one of another authority, and one that has ended are refused where certificates are required."""
    foreign = MeshCertificates.begin(tmp_path).issue("client", PeerKind.CLIENT)
    ended = mesh.certificates.issue("late", PeerKind.CLIENT, ago=dt.timedelta(days=2))
    assert mesh.serial()
    assert await _is_refused(mesh, foreign)
    assert await _is_refused(mesh, ended)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        mesh.serial(shows=False)


async def test_optional_certificates_are_still_looked_at(
    open_mesh: TlsMesh, tmp_path: Path
) -> None:
    """Where certificates are optional none is taken, and a foreign one is refused."""
    foreign = MeshCertificates.begin(tmp_path).issue("client", PeerKind.CLIENT)
    assert open_mesh.serial(shows=False) == open_mesh.certificates.record("edge").serial
    assert await _is_refused(open_mesh, foreign)


async def test_plain_http_is_refused(mesh: TlsMesh) -> None:
    """Nothing is answered to who speaks no TLS."""
    host, _, port = mesh.edge.settings.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /v2 HTTP/1.1\r\nhost: edge\r\n\r\n")
    try:
        async with asyncio.timeout(60):
            assert await reader.read() == b""
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_edge_reaches_nobody_who_pretends(folder: Path) -> None:
    """What shows a service's certificate, where a worker should be, gets no call."""
    mesh = await start(folder, ClientCertificate.OFF, worker=PeerKind.SERVICE)
    try:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await mesh.infer()
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await mesh.edge.envoy.counter(f"cluster.{V1}.ssl.fail_verify_san") > 0
        assert mesh.edge.workers[0].calls.total() == 0
    finally:
        await stop(mesh)


async def test_edge_reaches_nobody_of_another_authority(folder: Path, tmp_path: Path) -> None:
    """A worker whose certificate another authority gave gets no call."""
    mesh = await start(folder, ClientCertificate.OFF)
    try:
        security: Security = MeshCertificates.begin(tmp_path).security("w1", PeerKind.WORKER)
        foreign = await mesh.edge.add_worker("w1", V1, security=security)
        mesh.edge.set_workers({foreign.address: {V1}})
        await mesh.edge.in_sync()
        with pytest.raises(grpc.aio.AioRpcError):
            await mesh.infer()
        assert foreign.calls.total() == 0
    finally:
        await stop(mesh)
