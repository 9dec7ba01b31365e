"""A registry that finds its workers in a real Consul: lists, watches and placements answer from there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.registry.v1 import placement_pb2, placement_service_pb2

from services.registry.settings import RegistrySettings
from services.rpc.consul import Consul
from services.rpc.names import VersionName
from services.rpc.settings import load
from services.worker.adapters.consul_registration import ConsulRegistration
from services.worker.domain.counters import Counters
from services.worker.domain.load_state import LoadState
from services.worker.ports.discovery import VersionReport, WorkerReport
from tests.consul_agent import ConsulAgent, eventually, needs_consul
from tests.discovery_parts import LEASE, identity
from tests.integration.registry.client import Client, read, refused

pytestmark = [pytest.mark.extended, needs_consul]

_ADD = VersionName("add", "1")


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[ConsulAgent]:
    agent = ConsulAgent(tmp_path)
    await agent.start()
    yield agent
    agent.kill()


@pytest.fixture
def settings(folder: Path, agent: ConsulAgent) -> RegistrySettings:
    return load(
        RegistrySettings,
        state_dir=folder,
        registry_address=f"unix:{folder}/registry.sock",
        drain_seconds=1.0,
        discovery="consul",
        consul_address=agent.url,
    )


@pytest.fixture
async def worker(agent: ConsulAgent) -> AsyncIterator[ConsulRegistration]:
    consul = Consul(agent.access)
    yield ConsulRegistration(consul, identity("w1"), LEASE)
    await consul.close()


def _report(state: LoadState, reason: str = "", *, draining: bool = False) -> WorkerReport:
    version = VersionReport(_ADD, state, reason, Counters(succeeded=7))
    return WorkerReport(draining=draining, in_flight=3, versions=[version])


async def _listed(client: Client) -> list[worker_pb2.Worker]:
    answer = await client.discovery.ListWorkers(discovery_service_pb2.ListWorkersRequest())
    return list(answer.workers)


async def _live(client: Client) -> list[str]:
    return [worker.name for worker in await _listed(client)]


async def test_workers_of_consul(client: Client, worker: ConsulRegistration) -> None:
    """ListWorkers and WatchWorkers tell Consul's workers, without what is told at each beat only."""
    watch = client.discovery.WatchWorkers(discovery_service_pb2.WatchWorkersRequest())
    async with asyncio.timeout(60):
        assert list((await read(watch)).workers) == []
        await worker.renew(_report(LoadState.READY))
        (heard,) = (await read(watch)).workers
        assert await _listed(client) == [heard]
        assert (heard.name, heard.pool, heard.address) == (
            "workers/w1",
            "default",
            "unix:/run/w1.sock",
        )
        (version,) = heard.versions
        assert version.state == placement_pb2.LOAD_STATE_READY
        assert not version.HasField("counters")
        assert not heard.HasField("expire_time")
        assert heard.in_flight == 0
        await worker.renew(_report(LoadState.DRAINING, draining=True))
        assert (await read(watch)).workers[0].draining
        await worker.end()
        assert list((await read(watch)).workers) == []
    watch.cancel()


async def test_placement_follows_consul(client: Client, worker: ConsulRegistration) -> None:
    """A placement's status is what the workers in Consul say of it."""
    name = await client.push("add@1")
    placed = await client.place(name)
    await worker.renew(_report(LoadState.FAILED, "no memory"))
    request = placement_service_pb2.GetPlacementRequest(name=placed.name)

    async def states() -> list[tuple[int, str]]:
        placement = (await client.placements.GetPlacement(request)).placement
        return [(one.state, one.reason) for one in placement.status.workers]

    async def failed() -> bool:
        return await states() == [(placement_pb2.LOAD_STATE_FAILED, "no memory")]

    await eventually(failed, "the placement is told of the failure")


async def test_registering_here_is_refused(client: Client) -> None:
    """A worker that would register with the registry is told which setting keeps it out."""
    message = worker_pb2.Worker(name="workers/w1", pool="default", address="unix:/w.sock")
    for call in (
        client.discovery.RegisterWorker(
            discovery_service_pb2.RegisterWorkerRequest(worker=message)
        ),
        client.discovery.DeregisterWorker(
            discovery_service_pb2.DeregisterWorkerRequest(name="workers/w1")
        ),
    ):
        refusal = await refused(call)
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert refusal.reason == "DISCOVERY_IN_CONSUL"
        assert refusal.metadata["setting"] == "INFERPLANE_DISCOVERY"
        assert "INFERPLANE_DISCOVERY=consul" in refusal.message


async def test_consul_dies(client: Client, agent: ConsulAgent, worker: ConsulRegistration) -> None:
    """Without Consul the registry answers as before, with the workers as last known; so it does once Consul is back."""
    await worker.renew(_report(LoadState.READY))

    async def is_listed() -> bool:
        return await _live(client) == ["workers/w1"]

    await eventually(is_listed, "the worker is listed")
    agent.kill()
    await client.push("add@1")
    assert await is_listed()
    await agent.start()
    await worker.renew(_report(LoadState.DRAINING))

    async def is_draining() -> bool:
        return (await _listed(client))[0].versions[0].state == placement_pb2.LOAD_STATE_DRAINING

    await eventually(is_draining, "the change is heard")
