"""The worker on TCP, behind either of its servers: TLS with the edge alone, and no identity from anybody else."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from inferplane.generation.v1 import generation_pb2 as generation
from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub

from services.cli.adapters import ca
from services.rpc import health
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY
from tests.mesh_certificates import MeshCertificates, client_context, serial_at
from tests.text_worker import TextWorker
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity, continued, text_of

_IDENTITY = (("x-inferplane-project", "p"), ("x-inferplane-key", "k"))


@dataclass(frozen=True, slots=True)
class Behind:
    """A worker with a certificate, and whom it may meet."""

    worker: TextWorker
    certificates: MeshCertificates

    def channel(self, name: str) -> grpc.aio.Channel:
        """A connection of its own, with what lies in a peer's folder now."""
        folder = self.certificates.folder / name
        credentials = grpc.ssl_channel_credentials(
            *((folder / file).read_bytes() for file in (AUTHORITIES, KEY, CERTIFICATE))
        )
        options = [
            ("grpc.ssl_target_name_override", PeerKind.WORKER.server_name),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        return grpc.aio.secure_channel(self.worker.address, credentials, options=options)

    def serial(self) -> str:
        """What a new connection is shown."""
        context = client_context(self.certificates.folder / "edge")
        return serial_at(self.worker.address, context, PeerKind.WORKER.server_name)


@pytest.fixture(params=["auto", "grpcio"])
async def behind(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Behind]:
    """Behind either front."""
    certificates = MeshCertificates.begin(tmp_path)
    certificates.issue("edge", PeerKind.EDGE)
    security = certificates.security("own", PeerKind.WORKER)
    hold = threading.Event()
    hold.set()
    worker = await TextWorker.start(
        "127.0.0.1:0",
        runner=ScriptedRunner(capacity(blocks=1024, max_blocks=128), hold=hold),
        front=request.param,
        security=security,
    )
    yield Behind(worker, certificates)
    hold.set()
    await worker.stop()


def _asking(tokens: int) -> service.GenerateRequest:
    sampling = generation.SamplingSettings(max_tokens=tokens, temperature=0.0)
    return service.GenerateRequest(
        model_name="smol", prompt=generation.Prompt(text="hi"), sampling=sampling
    )


async def _generated(channel: grpc.aio.Channel, **call: Any) -> str:
    stub = GenerationServiceStub(channel)
    return str((await stub.Generate(_asking(8), timeout=60, **call)).choices[0].text)


async def test_a_stream_outlives_new_certificates(behind: Behind) -> None:
    """A stream that began before goes on to its end; who connects meanwhile is shown the new certificate."""
    authority, hold = behind.certificates.authority, behind.worker.runner.hold
    assert hold is not None
    before = await asyncio.to_thread(behind.serial)
    request = service.GenerateStreamRequest(
        model_name="smol", prompt=generation.Prompt(text="hi"), sampling=_asking(400).sampling
    )
    text, runner = "", behind.worker.runner
    began = runner.steps
    hold.clear()  # the stream has begun, and its first token is on the way all the time
    async with behind.channel("edge") as channel:
        stream: Any = GenerationServiceStub(channel).GenerateStream(request, timeout=240)
        first = asyncio.ensure_future(stream.read())
        async with asyncio.timeout(60):
            while runner.steps == began:  # noqa: ASYNC110 - a thread counts them
                await asyncio.sleep(0.005)
        for act in (
            lambda: authority.renew(ca.now()),
            lambda: authority.add_key(10, None, ca.now()),
            lambda: authority.renew(ca.now()),
            authority.retire,
        ):
            act()
            async with behind.channel("edge") as fresh:
                await health_pb2_grpc.HealthStub(fresh).Check(
                    health_pb2.HealthCheckRequest(), metadata=_IDENTITY, timeout=60
                )
        assert runner.steps == began + 1
        hold.set()
        message = await first
        while message is not grpc.aio.EOF:
            text += "".join(piece.text for piece in message.pieces)
            message = await stream.read()
    assert text == text_of(continued(b"hi", 400))
    after = await asyncio.to_thread(behind.serial)
    assert before != after == behind.certificates.record("own").serial


@pytest.mark.parametrize("kind", [PeerKind.WORKER, PeerKind.SERVICE, PeerKind.CLIENT])
async def test_only_the_edge_calls(behind: Behind, kind: PeerKind) -> None:
    """Who has a certificate of ours and is not the edge reaches nothing."""
    behind.certificates.issue("other", kind)
    async with behind.channel("other") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await _generated(channel)
    refusals = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}
    if kind is PeerKind.WORKER:
        refusals.add(grpc.StatusCode.UNIMPLEMENTED)
    assert raised.value.code() in refusals


async def test_a_worker_may_ask_for_health(behind: Behind) -> None:
    """The health check of its own container shows the worker's certificate: it hears that, and nothing else."""
    own = behind.certificates.folder / "own"
    answer = await asyncio.to_thread(health.ask, behind.worker.address, tls=own)
    assert answer == "SERVING"


async def test_strangers_get_no_connection(behind: Behind, tmp_path_factory: Any) -> None:
    """An edge of another authority reaches nothing, though it trusts ours."""
    foreign = MeshCertificates.begin(tmp_path_factory.mktemp("foreign"))
    peer = foreign.issue("edge", PeerKind.EDGE)
    stranger = behind.certificates.folder / "stranger"
    stranger.mkdir()
    own = behind.certificates.folder / "own"
    for folder, name in ((peer, CERTIFICATE), (peer, KEY), (own, AUTHORITIES)):
        (stranger / name).write_bytes((folder / name).read_bytes())
    async with behind.channel("stranger") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await _generated(channel)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_plain_tcp_says_nobody_who_calls() -> None:
    """On plain TCP a call is served, and one that says who calls is refused."""
    worker = await TextWorker.start("127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(worker.address) as channel:
            assert await _generated(channel)
            for header in _IDENTITY:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await _generated(channel, metadata=(header,))
                assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
    finally:
        await worker.stop()
