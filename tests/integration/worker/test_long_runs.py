"""Runs that take long, or for ever, in a real worker: other versions go on."""

import asyncio

import numpy as np
import pytest

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, output, rounds_for
from tests.integration.worker.worker_process import running
from tests.models import artifact, good

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
