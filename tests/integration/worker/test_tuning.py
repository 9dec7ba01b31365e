"""Measuring in a real worker: once where it is wanted, kept with the version, taken over without a gap."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from inferplane.registry.v1 import model_pb2, placement_pb2

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, output
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, good

VERSION = "models/affine/versions/1"
X = np.ones((1, 4), np.float32)
AUTO = model_pb2.VersionSettings(tuning_mode=model_pb2.TUNING_MODE_AUTO)
READY = placement_pb2.LOAD_STATE_READY


def executions(registry: Registry) -> list[placement_pb2.VersionExecution]:
    """How live workers run the version."""
    return [v.execution for w in registry.workers.values() for v in w.versions]


def is_run_by(registry: Registry, tuning: model_pb2.VersionTuning) -> bool:
    """Whether all do so by that."""
    wanted = (tuning.max_batch_size, tuning.instances, tuning.intra_op_threads)
    found = executions(registry)
    return bool(found) and all(
        (e.max_batch_size, e.instances, e.intra_op_threads) == wanted for e in found
    )


@asynccontextmanager
async def calling(worker: WorkerProcess) -> AsyncIterator[None]:
    """Eight callers meanwhile, each of whose calls must be answered."""
    client, enough = Client(worker.channel), asyncio.Event()

    async def call() -> None:
        while not enough.is_set():
            assert (output(await client.infer("affine", x=X)) == 3 * X).all()

    callers = [asyncio.create_task(call()) for _ in range(8)]
    try:
        yield
    finally:
        enough.set()
        await asyncio.gather(*callers)


async def test_what_is_measured_is_kept_and_taken_over_without_a_gap(home: Home) -> None:
    """Measured at load, by another's measuring, and when it is wanted anew: no call fails, it is never not READY."""
    registry = home.registry
    await registry.put(VERSION, artifact.of_model(good.affine(3.0)), AUTO)
    async with running(home.folder, home.registry_address, tune_seconds="1") as worker:
        await registry.until_state(VERSION, "READY")
        await registry.until(lambda: registry.versions[VERSION].HasField("tuning"))
        measured = registry.versions[VERSION].tuning
        assert measured.rows_per_second >= measured.baseline_rows_per_second > 0
        assert is_run_by(registry, measured)
        since = len(registry.reports)
        async with calling(worker):
            others = model_pb2.VersionTuning(
                intra_op_threads=2, instances=3, max_batch_size=5, machine_cpus=6
            )
            await registry.tune(VERSION, others)
            await registry.until(lambda: is_run_by(registry, others))
            await registry.tune(VERSION, None)
            await registry.until(lambda: registry.versions[VERSION].HasField("tuning"))
            anew = registry.versions[VERSION].tuning
            assert anew.machine_cpus == measured.machine_cpus
            await registry.until(lambda: is_run_by(registry, anew))
        states = {v.state for w in registry.reports[since:] for v in w.versions}
        assert states == {READY}
