"""The router as a process, between the real registry and a real Envoy: killed, restarted, stopped, misconfigured."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from inference import open_inference_pb2 as oip
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.registry.v1 import endpoint_pb2, endpoint_service_pb2, placement_pb2
from inferplane.router.v1 import router_service_pb2
from inferplane.router.v1.router_service_pb2_grpc import RouterServiceStub

from services.rpc import channel
from services.rpc.names import VersionName
from services.rpc.settings import environment_for_children
from services.rpc.tcp_ports import free_port
from tests.envoy_process import EnvoyProcess
from tests.integration.registry.client import Client
from tests.integration.router.echo_worker import EchoWorker
from tests.integration.router.edge import V1, V2
from tests.integration.router.load import callers
from tests.integration.router.waiting import until

# Seconds; short, so that a test sees it end; long enough that a busy machine's pauses end none that is renewed.
_LEASE = 3.0


@dataclass(frozen=True, slots=True)
class Caller:
    """A client at the edge."""

    stub: Any

    async def infer(self) -> Any:
        return await self.stub.ModelInfer(oip.ModelInferRequest(model_name="digits"), timeout=30)

    async def is_served(self) -> bool:
        try:
            await self.infer()
        except grpc.aio.AioRpcError:
            return False
        return True


@dataclass(slots=True)
class Mesh:
    """Registry, router and Envoy as processes; echo workers that keep their leases by themselves."""

    folder: Path
    edge: str
    registry: asyncio.subprocess.Process = field(init=False)
    router: asyncio.subprocess.Process = field(init=False)
    envoy: EnvoyProcess = field(init=False)
    client: Client = field(init=False)
    workers: list[EchoWorker] = field(default_factory=list)
    leases: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def address(self, service: str) -> str:
        return f"unix:{self.folder}/{service}.sock"

    def further_variables(self, _service: str) -> dict[str, str]:
        """Of a service's environment."""
        return {}

    async def start_process(self, service: str) -> asyncio.subprocess.Process:
        variables = {
            "registry_address": self.address("registry"),
            "router_address": self.address("router"),
            "edge_address": self.edge,
            "state_dir": str(self.folder),
            "store_url": f"sqlite:///{self.folder}/registry.db",
            "lease_seconds": str(_LEASE),
            "drain_seconds": "1",
            "edge_auth": "off",
            **self.further_variables(service),
        }
        with (self.folder / f"{service}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"services.{service}"),
                env=environment_for_children(**variables),
                stdout=log,
                stderr=log,
            )

    async def start(self) -> None:
        self.registry = await self.start_process("registry")
        self.router = await self.start_process("router")
        self.envoy = await EnvoyProcess.start(self.folder, self.address("router"))
        self.client = Client(self.address("registry"))
        async with asyncio.timeout(100):
            await self.client.channel.channel_ready()

    async def stop(self) -> None:
        for lease in self.leases.values():
            lease.cancel()
        await asyncio.gather(*self.leases.values(), return_exceptions=True)
        await self.client.channel.close()
        await self.envoy.stop()
        for worker in self.workers:
            await worker.stop()
        for process in (self.router, self.registry):
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def add_worker(self, name: str, *versions: VersionName) -> EchoWorker:
        """A worker that is READY with `versions` and renews its lease."""
        address = f"unix:{self.folder}/{name}.sock"
        worker = await EchoWorker(name, address).start(*map(str, versions))
        self.workers.append(worker)
        self.keep_lease(worker, versions)
        return worker

    def keep_lease(self, worker: EchoWorker, versions: tuple[VersionName, ...]) -> None:
        """Until the mesh stops."""
        self.leases[worker.name] = asyncio.create_task(self._renew(worker, versions))

    async def _renew(self, worker: EchoWorker, versions: tuple[VersionName, ...]) -> None:
        message = worker_pb2.Worker(
            name=f"workers/{worker.name}", pool="default", address=worker.address
        )
        for version in versions:
            message.versions.add(version=str(version), state=placement_pb2.LOAD_STATE_READY)
        request = discovery_service_pb2.RegisterWorkerRequest(worker=message)
        request.ttl.FromMilliseconds(round(_LEASE * 1000))
        while True:
            # A registry that is away is reached by a later renewal.
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.client.discovery.RegisterWorker(request, timeout=_LEASE)
            await asyncio.sleep(_LEASE / 15)

    async def put_endpoint(self, **shares: float) -> None:
        """Split `digits` among versions: `v1=9, v2=1`."""
        endpoint = endpoint_pb2.Endpoint(name="endpoints/digits")
        for version, weight in shares.items():
            target = f"models/digits/versions/{version.removeprefix('v')}"
            endpoint.targets.add(target=target, weight=weight)
        await self.client.endpoints.UpdateEndpoint(
            endpoint_service_pb2.UpdateEndpointRequest(endpoint=endpoint, allow_missing=True)
        )

    async def status(self) -> Any:
        async with channel.connect(self.address("router")) as direct:
            return await self.status_over(direct)

    async def status_over(self, direct: grpc.aio.Channel, *, alone: bool = False) -> Any:
        """The router's, over a channel to it; alone: without what others say."""
        request = router_service_pb2.GetStatusRequest(this_router_only=alone)
        return await RouterServiceStub(direct).GetStatus(request, timeout=20, wait_for_ready=True)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Mesh, Caller]]:
    """Two versions, one worker each, all traffic to the first, and a caller at the edge."""
    mesh = Mesh(folder, f"127.0.0.1:{free_port()}")
    await mesh.start()
    try:
        for version in ("digits@1", "digits@2"):
            await mesh.client.place(await mesh.client.push(version))
        await mesh.add_worker("one", V1)
        await mesh.add_worker("two", V2)
        await mesh.put_endpoint(v1=1)
        await mesh.envoy.ready()
        async with channel.connect(mesh.edge) as edge:
            caller = Caller(GRPCInferenceServiceStub(edge))
            await until(caller.is_served, seconds=100)
            yield mesh, caller
    finally:
        await mesh.stop()


async def test_router_killed_and_restarted_under_load_loses_nothing(folder: Path) -> None:
    """1. kill -9 under load. 2. Calls go on. 3. It restarts; Envoy gets nothing new. 4. The next change is applied."""
    async with serving(folder) as (mesh, caller):
        before = (await mesh.status()).snapshot_version
        async with callers(caller) as outcome:
            await outcome.more(200)
            mesh.router.send_signal(signal.SIGKILL)
            await mesh.router.wait()
            await outcome.more(500)
            mesh.router = await mesh.start_process("router")

            async def is_back() -> bool:
                status = await mesh.status()
                return any(envoy.in_sync for envoy in status.envoys)

            await until(is_back, seconds=100)
            status = await mesh.status()
            assert status.snapshot_version == before
            assert [(e.ack_count, e.nack_count) for e in status.envoys] == [(0, 0)]
            await outcome.more(100)
            assert set(outcome.answers) == {str(V1)}
            await mesh.put_endpoint(v2=1)
            await until(lambda: outcome.last == str(V2))
        assert not outcome.failures


async def test_registry_and_router_killed_together_lose_nothing(folder: Path) -> None:
    """Both control-plane processes die and come back while workers renew; the new router doesn't empty the world."""
    async with serving(folder) as (mesh, caller):
        async with callers(caller) as outcome:
            await outcome.more(100)
            for process in (mesh.router, mesh.registry):
                process.send_signal(signal.SIGKILL)
                await process.wait()
            await outcome.more(100)
            mesh.router = await mesh.start_process("router")
            mesh.registry = await mesh.start_process("registry")

            async def is_back() -> bool:
                return any(envoy.in_sync for envoy in (await mesh.status()).envoys)

            await until(is_back, seconds=100)
            await outcome.more(200)
        assert not outcome.failures


async def test_registry_restart_alone_flaps_nothing(folder: Path) -> None:
    """The router keeps workers that a restarted registry doesn't know yet, and resumes its watches."""
    async with serving(folder) as (mesh, caller):
        before = await mesh.status()
        async with callers(caller) as outcome:
            mesh.registry.send_signal(signal.SIGKILL)
            await mesh.registry.wait()
            await until(_reads(mesh, lambda s: not s.registry_connected))
            mesh.registry = await mesh.start_process("registry")
            await until(_reads(mesh, lambda s: s.registry_connected and s.discovery_connected), 30)
            await outcome.more(100)
            await mesh.put_endpoint(v2=1)
            await until(lambda: outcome.last == str(V2))
        assert not outcome.failures
        after = await mesh.status()
        assert after.envoys[0].connect_time == before.envoys[0].connect_time


async def test_dead_worker_leaves_within_its_lease(folder: Path) -> None:
    """A worker that no longer renews is out of the assignment after its lease, without a failed call."""
    async with serving(folder) as (mesh, caller):
        await mesh.put_endpoint(v1=1, v2=1)
        async with callers(caller) as outcome:
            await until(lambda: outcome.last == str(V2))
            mesh.leases["two"].cancel()
            await until(
                _reads(mesh, lambda s: [t.ready_workers for t in s.endpoints[0].targets] == [1, 0])
            )
            status = await mesh.status()
            assert [t.effective_share for t in status.endpoints[0].targets] == [1, 0]
        assert not outcome.failures


async def test_sigterm_ends_it_soon_with_zero(folder: Path) -> None:
    """Envoy's stream never ends by itself; the router stops all the same, soon and cleanly."""
    async with serving(folder) as (mesh, caller):
        began = time.monotonic()
        mesh.router.send_signal(signal.SIGTERM)
        assert await mesh.router.wait() == 0
        assert time.monotonic() - began < 10
        await caller.infer()


async def test_bad_setting_stops_it_with_its_name() -> None:
    """A setting that can't be is named with its value, and the process ends with 1."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.router"),
        env={**os.environ, "INFERPLANE_MAX_MESSAGE_BYTES": "many"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, text = await process.communicate()
    assert process.returncode == 1
    assert b"INFERPLANE_MAX_MESSAGE_BYTES='many'" in text


def _reads(mesh: Mesh, holds: Callable[[Any], bool]) -> Callable[[], Awaitable[bool]]:
    async def read() -> bool:
        return holds(await mesh.status())

    return read
