"""When a worker as a whole serves: what containers' health checks ask, and what a roll-out waits for."""

import asyncio
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.rpc import health
from tests.integration.worker import registry_stand_in
from tests.integration.worker.conftest import Home
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, bad, good

SLOW, QUICK = "models/affine/versions/1", "models/affine/versions/2"
BROKEN = "models/bad/versions/1"
SERVING, NOT_SERVING = "SERVING", "NOT_SERVING"


async def said(worker: WorkerProcess, service: str = "") -> str:
    """What a container's health check hears."""
    return await asyncio.to_thread(health.ask, worker.address, service=service, seconds=60)


async def until_serving(worker: WorkerProcess) -> None:
    stub = health_pb2_grpc.HealthStub(worker.channel)
    async with asyncio.timeout(60):
        async for answer in stub.Watch(health_pb2.HealthCheckRequest()):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return


@pytest.mark.usefixtures("both_fronts")
async def test_a_worker_serves_once_it_has_what_was_assigned_at_its_start(home: Home) -> None:
    """1. One version is loaded and one has failed: each says so, the worker waits for the third. 2. That is loaded:
    the worker serves. 3. What is placed later changes nothing.
    """
    home.registry.held[SLOW] = asyncio.Event()
    await home.registry.put(SLOW, artifact.of_model(good.affine(1.0)))
    await home.registry.put(QUICK, artifact.of_model(good.affine(2.0)))
    await home.registry.put(BROKEN, artifact.of_bytes(bad.corrupt()))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(QUICK, "READY")
        await home.registry.until_state(BROKEN, "FAILED")
        assert await said(worker, QUICK) == SERVING
        assert await said(worker) == NOT_SERVING
        home.registry.held[SLOW].set()
        await until_serving(worker)
        assert await said(worker, SLOW) == SERVING
        late = "models/late/versions/1"
        home.registry.held[late] = asyncio.Event()
        await home.registry.put(late, artifact.of_model(good.affine(3.0)))
        await home.registry.until_state(late, "PULLING")
        assert await said(worker) == SERVING
        worker.ask_to_stop()
        assert await worker.ended() == 0


async def test_a_version_that_is_taken_back_is_not_waited_for(home: Home) -> None:
    """The only version of the start is unassigned before it is loaded: the worker serves, without it."""
    home.registry.held[SLOW] = asyncio.Event()
    await home.registry.put(SLOW, artifact.of_model(good.affine(1.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(SLOW, "PULLING")
        assert await said(worker) == NOT_SERVING
        await home.registry.remove(SLOW)
        await until_serving(worker)


async def test_without_a_registry_a_worker_is_there_and_does_not_serve(folder: Path) -> None:
    """It can't know what it should have, so nobody should go for its sake; a registry that comes has it serve, with
    nothing placed at once. Asked to stop while it waits, it ends with 0.
    """
    address = f"unix:{folder}/registry.sock"
    async with running(folder, address) as worker:
        assert await said(worker) == NOT_SERVING
        async with registry_stand_in.serving(Registry(), address):
            await until_serving(worker)
    async with running(folder, f"unix:{folder}/nobody.sock") as worker:
        assert await said(worker) == NOT_SERVING
        worker.ask_to_stop()
        assert await worker.ended() == 0
