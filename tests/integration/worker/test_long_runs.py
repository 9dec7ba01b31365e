"""Runs that take long, or for ever, in a real worker: other versions go on."""

import asyncio
import time

import grpc
import numpy as np
import onnxruntime as ort
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import TRIALS, Array, Client, output, rounds_for
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, good

pytestmark = pytest.mark.extended

GOOD, SLOW = "models/affine/versions/1", "models/slow/versions/1"
X, ONE = np.ones((1, 4), np.float32), np.ones(1, np.float32)


@pytest.mark.usefixtures("both_fronts")
async def test_a_model_that_was_quick_may_be_slow_and_stalls_nobody(home: Home) -> None:
    """Sixty calls of one round, then one of seconds: another version answers before that one ends."""
    await home.registry.put(GOOD, artifact.of_model(good.affine(2.0)))
    await home.registry.put(SLOW, artifact.of_model(good.counting()))
    async with running(home.folder, home.registry_address) as worker:
        for version in (GOOD, SLOW):
            await home.registry.until_state(version, "READY")
        client = Client(worker.channel)
        rounds = await rounds_for(client, "slow", 3)
        for _ in range(60):
            await client.infer("slow", x=ONE, rounds=np.array([1], np.int64))
        slow = asyncio.create_task(client.infer("slow", x=ONE, rounds=rounds))
        await home.registry.until(
            lambda: any(w.in_flight == 1 for w in home.registry.workers.values())
        )
        for _ in range(20):
            assert (output(await client.infer("affine", x=X)) == 2).all()
        assert not slow.done()
        assert (output(await slow) == ONE).all()


def rounds_outside(seconds: float) -> Array:
    """As `rounds_for`, but measured here: a worker that has seen a run last long waits ten times as long."""
    session = ort.InferenceSession(good.counting(), providers=["CPUExecutionProvider"])
    tried, quickest = 200_000, float("inf")
    for _ in range(TRIALS):
        started = time.monotonic()
        session.run(None, {"x": ONE, "rounds": np.array([tried], np.int64)})
        quickest = min(quickest, time.monotonic() - started)
    return np.array([int(tried * seconds / quickest)], np.int64)


async def is_serving(worker: WorkerProcess, version: str) -> bool:
    stub = health_pb2_grpc.HealthStub(worker.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=version))
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.usefixtures("both_fronts")
async def test_a_version_is_not_ready_while_a_run_is_stuck(home: Home) -> None:
    """It says why, other versions go on, and when the run ends it is READY again."""
    await home.registry.put(GOOD, artifact.of_model(good.affine(2.0)))
    await home.registry.put(SLOW, artifact.of_model(good.counting()))
    async with running(home.folder, home.registry_address, stall_seconds="1") as worker:
        for version in (GOOD, SLOW):
            await home.registry.until_state(version, "READY")
        client = Client(worker.channel)
        rounds = rounds_outside(6)
        slow = asyncio.create_task(client.infer("slow", x=ONE, rounds=rounds))
        stuck = await home.registry.until_state(SLOW, "FAILED")
        assert "a run is still computing" in stuck.reason
        assert not await is_serving(worker, SLOW)
        assert await is_serving(worker, GOOD)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.infer("slow", x=ONE, rounds=rounds)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (output(await client.infer("affine", x=X)) == 2).all()
        assert not slow.done()
        assert (output(await slow) == ONE).all()
        assert not (await home.registry.until_state(SLOW, "READY")).reason
        assert await is_serving(worker, SLOW)


async def test_a_worker_with_a_run_without_end_stops_on_sigterm(home: Home) -> None:
    """Stuck or not, the process ends within its grace time."""
    await home.registry.put(SLOW, artifact.of_model(good.counting()))
    limits = {"stall_seconds": "1", "drain_seconds": "1"}
    async with running(home.folder, home.registry_address, **limits) as worker:
        await home.registry.until_state(SLOW, "READY")
        endless = np.array([1 << 40], np.int64)
        call = asyncio.create_task(Client(worker.channel).infer("slow", x=ONE, rounds=endless))
        await home.registry.until_state(SLOW, "FAILED")
        worker.ask_to_stop()
        assert await worker.ended() == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await call
