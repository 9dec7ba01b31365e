"""Two routers, one registry, and an edge that knows both, all of them processes: routers are lost, nothing else."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from inferplane.registry.v1 import endpoint_service_pb2, endpoint_service_pb2_grpc

from services.rpc import channel, health
from services.rpc.peer_kind import PeerKind
from services.rpc.settings import environment_for_children
from services.rpc.tcp_ports import free_port
from services.rpc.tls import Security
from tests.integration.registry.client import Client
from tests.integration.router.echo_worker import EchoWorker
from tests.integration.router.edge import V1
from tests.integration.router.load import callers
from tests.integration.router.test_processes import Caller, Mesh
from tests.integration.router.waiting import until
from tests.mesh_certificates import MeshCertificates

pytestmark = pytest.mark.extended

_SECONDS = 90.0


@dataclass(slots=True)
class TwoRouters(Mesh):
    """All on TCP with certificates; the routers are `router` and `other`."""

    certificates: MeshCertificates = field(kw_only=True)
    ports: dict[str, int] = field(default_factory=dict)
    other: asyncio.subprocess.Process = field(init=False)
    edge_process: asyncio.subprocess.Process = field(init=False)

    def address(self, service: str) -> str:
        return f"127.0.0.1:{self.ports.setdefault(service, free_port())}"

    @property
    def routers(self) -> str:
        """As everybody who asks one of them knows them."""
        return f"{self.address('router')},{self.address('other')}"

    def further_variables(self, service: str) -> dict[str, str]:
        own = self.certificates.issue(service, PeerKind.SERVICE)
        edge = str(self.certificates.folder / "edge")
        return {"tls_dir": str(own), "edge_tls_dir": edge, "advertised_address": self.routers}

    def security(self, name: str, kind: PeerKind = PeerKind.SERVICE) -> Security:
        """Of a certificate that is made now."""
        return self.certificates.security(name, kind)

    async def start_router(self, name: str) -> asyncio.subprocess.Process:
        """The one or the other."""
        own = self.further_variables(name)
        return await self._started(
            name, "services.router", router_address=self.address(name), **own
        )

    async def start_edge(self) -> None:
        """As a container would run it."""
        self.edge_process = await self._started(
            "edge",
            "services.cli.edge",
            router_address=self.routers,
            tls_dir=str(self.certificates.issue("edge", PeerKind.EDGE)),
            metrics_address=self.address("metrics"),
            edge_threads="1",
            drain_seconds="60",
        )

    async def _started(
        self, name: str, module: str, **variables: str
    ) -> asyncio.subprocess.Process:
        known = {
            "registry_address": self.address("registry"),
            "edge_address": self.edge,
            "edge_auth": "off",
            "lease_seconds": "3",
            **variables,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module),
                env=environment_for_children(**known),
                stdout=log,
                stderr=log,
            )

    async def start(self) -> None:
        self.registry = await self.start_process("registry")
        self.router = await self.start_router("router")
        self.other = await self.start_router("other")
        self.client = Client(self.address("registry"), self.security("peer"))
        async with asyncio.timeout(_SECONDS):
            await self.client.channel.channel_ready()
        await self.start_edge()
        await self.client.place(await self.client.push("digits@1"))
        own = self.security("one", PeerKind.WORKER)
        worker = await EchoWorker("one", "127.0.0.1:0", security=own).start(str(V1))
        self.workers.append(worker)
        self.keep_lease(worker, (V1,))
        await self.put_endpoint(v1=1)

    async def stop(self) -> None:
        for lease in self.leases.values():
            lease.cancel()
        await asyncio.gather(*self.leases.values(), return_exceptions=True)
        await self.client.channel.close()
        for worker in self.workers:
            await worker.stop()
        for process in (self.edge_process, self.router, self.other, self.registry):
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            await process.wait()

    async def status_of(self, router: str) -> Any:
        """What one router says; None: it does not answer."""
        own = self.security("asking")
        async with channel.connect(self.address(router), security=own) as direct:
            try:
                return await self.status_over(direct, alone=True)
            except grpc.aio.AioRpcError:
                return None

    async def asked(self) -> str:
        """The router that the edge has its stream with and is in sync with; empty: none."""
        for name in ("router", "other"):
            status = await self.status_of(name)
            if status is not None and any(envoy.in_sync for envoy in status.envoys):
                return name
        return ""

    async def is_asked(self, name: str) -> bool:
        """Whether it is this one."""
        return await self.asked() == name


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[TwoRouters, Caller]]:
    """A mesh that answers, and a caller at its edge."""
    certificates = MeshCertificates.begin(folder)
    mesh = TwoRouters(folder, f"127.0.0.1:{free_port()}", certificates=certificates)
    try:
        await mesh.start()
        async with channel.connect(mesh.edge) as connected:
            caller = Caller(GRPCInferenceServiceStub(connected))
            await until(caller.is_served, seconds=_SECONDS)
            yield mesh, caller
    finally:
        await mesh.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
async def test_the_edge_goes_to_the_other_router(folder: Path, how: signal.Signals) -> None:
    """1. Both routers say the same. 2. The one that the edge asks is lost: no call fails. 3. The edge asks the other,
    which has nothing to tell it. 4. What changes then comes by the other, and management calls go there.
    """
    async with served(folder) as (mesh, caller):
        await until(lambda: _agree(mesh), seconds=_SECONDS)
        await until(lambda: _is_settled(mesh), seconds=_SECONDS)
        lost = await mesh.asked()
        left = {"router": "other", "other": "router"}[lost]
        async with callers(caller, 2) as outcome:
            await outcome.more(20)
            {"router": mesh.router, "other": mesh.other}[lost].send_signal(how)
            await until(lambda: mesh.is_asked(left), seconds=_SECONDS)
            await outcome.more(20)
        assert outcome.failures == {}
        (envoy,) = (await mesh.status_of(left)).envoys
        assert (envoy.ack_count, envoy.nack_count) == (0, 0)
        async with channel.connect(mesh.edge) as edge:
            stub = endpoint_service_pb2_grpc.EndpointServiceStub(edge)
            listed = await stub.ListEndpoints(
                endpoint_service_pb2.ListEndpointsRequest(), timeout=60
            )
            assert [one.name for one in listed.endpoints] == ["endpoints/digits"]
            status = await mesh.status_over(edge)
            assert status.snapshot_version == (await mesh.status_of(left)).snapshot_version
        await mesh.client.place(await mesh.client.push("digits@2"))
        await mesh.put_endpoint(v1=1, v2=1)
        await until(lambda: _acknowledged(mesh, left), seconds=_SECONDS)


async def test_any_router_tells_of_all_of_them(folder: Path) -> None:
    """1. Each of the two tells of the edge's Envoy, once, and of the router that it asks. 2. One that hangs, then one
    that is dead, is told as such by the other, through the edge as well; 3. so it is until it is back.
    """
    async with served(folder) as (mesh, _):
        await until(lambda: _agree(mesh), seconds=_SECONDS)
        await until(lambda: _is_settled(mesh), seconds=_SECONDS)
        lost = await mesh.asked()
        left = {"router": "other", "other": "router"}[lost]
        for name in (lost, left):
            await until(partial(_tells_of_all, mesh, name, lost), seconds=_SECONDS)
        process = {"router": mesh.router, "other": mesh.other}[lost]
        process.send_signal(signal.SIGSTOP)
        await until(partial(_tells_of_loss, mesh, left, lost, "no answer"), seconds=_SECONDS)
        process.kill()
        await process.wait()
        await until(partial(_tells_of_loss, mesh, left, lost, "UNAVAILABLE"), seconds=_SECONDS)
        async with channel.connect(mesh.edge) as edge:
            whole = await mesh.status_over(edge)
        assert [(one.address, bool(one.problem)) for one in whole.routers] == [
            (mesh.address(left), False),
            (mesh.address(lost), True),
        ]
        setattr(mesh, lost, await mesh.start_router(lost))
        await until(partial(_tells_of_all, mesh, left, left), seconds=_SECONDS)


async def _told(mesh: TwoRouters, router: str) -> Any:
    """What a router says of all."""
    own = mesh.security("asking")
    async with channel.connect(mesh.address(router), security=own) as direct:
        return await mesh.status_over(direct)


async def _tells_of_all(mesh: TwoRouters, router: str, asked: str) -> bool:
    """Both have answered, and the one Envoy is in sync with the router that it asks."""
    whole = await _told(mesh, router)
    assert whole.routers[0].address == mesh.address(router)
    envoys = [(one.router, one.in_sync) for one in whole.envoys]
    found = {one.address for one in whole.routers if not one.problem and one.snapshot_version}
    return (
        found == {mesh.address("router"), mesh.address("other")}
        and len({one.snapshot_version for one in whole.routers}) == 1
        and envoys == [(mesh.address(asked), True)]
    )


async def _tells_of_loss(mesh: TwoRouters, router: str, lost: str, why: str) -> bool:
    """The lost one is listed with the reason; the Envoy asks the one that is left."""
    whole = await _told(mesh, router)
    problems = {one.address: one.problem for one in whole.routers if one.problem}
    envoys = [one.router for one in whole.envoys]
    return why in problems.get(mesh.address(lost), "") and envoys == [mesh.address(router)]


async def _agree(mesh: TwoRouters) -> bool:
    one, other = await mesh.status_of("router"), await mesh.status_of("other")
    if one is None or other is None:
        return False
    return bool(one.snapshot_version) and one.snapshot_version == other.snapshot_version


async def _is_settled(mesh: TwoRouters) -> bool:
    return bool(await mesh.asked())


async def _acknowledged(mesh: TwoRouters, router: str) -> bool:
    return any(envoy.ack_count for envoy in (await mesh.status_of(router)).envoys)


async def test_an_edge_that_is_asked_to_stop_finishes_its_calls(folder: Path) -> None:
    """SIGTERM: it is not ready any more, the call that runs gets its answer, and the process ends with 0."""
    async with served(folder) as (mesh, caller):
        ready = f"http://{mesh.address('metrics')}/ready"
        assert await asyncio.to_thread(health.is_ready, ready)
        (worker,) = mesh.workers
        worker.hold = asyncio.Event()
        before = worker.calls.total()
        call = asyncio.ensure_future(caller.infer())
        await until(lambda: worker.calls.total() > before, seconds=_SECONDS)
        mesh.edge_process.terminate()
        await until(lambda: _refuses(mesh.edge), seconds=_SECONDS)
        assert mesh.edge_process.returncode is None
        worker.hold.set()
        assert (await call).model_name == "digits"
        assert await mesh.edge_process.wait() == 0


async def _refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return True
    writer.close()
    return False
