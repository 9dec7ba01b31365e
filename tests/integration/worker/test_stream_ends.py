"""How streams end: with their version, with their worker, with their caller; the same over both fronts."""

import asyncio

import grpc
import numpy as np

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, output, request, rounds_for
from tests.integration.worker.stream_calls import (
    PLAIN,
    SUM,
    asked,
    of_sequence,
    open_stream,
    put_models,
)
from tests.integration.worker.worker_process import running
from tests.models import artifact, good

SLOW = "models/slow/versions/1"


async def test_streams_end_with_their_version_and_with_their_worker(
    home: Home, both_fronts: str
) -> None:
    """UNAVAILABLE, so that the client opens another one elsewhere; others stay; the worker's end is clean and soon.

    1. A version is unloaded: its stream ends, that of another version goes on.
    2. The worker drains: streams end that wait between requests, or have had none yet.
    """
    await put_models(home.registry)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(PLAIN, "READY")
        await home.registry.until_state(SUM, "READY")
        ends, stays, unused = (open_stream(worker) for _ in range(3))
        silent = asyncio.ensure_future(unused.initial_metadata())
        await ends.write(asked(0))
        await stays.write(of_sequence(1, 1, "start"))
        assert (await ends.read()).infer_response.id == "0"
        assert (await stays.read()).infer_response.id == "1"
        await home.registry.remove(PLAIN)
        assert await ends.code() is grpc.StatusCode.UNAVAILABLE
        assert "open the stream again" in await ends.details()
        await stays.write(of_sequence(2, 1))
        assert output((await stays.read()).infer_response)[0, 0] == 3
        worker.ask_to_stop()
        for stream in (stays, unused):
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        assert "drains" in await stays.details()
        assert await worker.ended() == 0
        silent.cancel()


async def test_a_cancelled_streams_requests_leave_the_queue(home: Home, both_fronts: str) -> None:
    """Only the one that runs is computed; the caller's deadline does the same."""
    await home.registry.put(SLOW, artifact.of_model(good.counting()))
    limits = {"concurrent_runs": "1", "max_batch_size": "1", "max_queue_seconds": "0"}
    async with running(home.folder, home.registry_address, **limits) as worker:
        await home.registry.until_state(SLOW, "READY")
        client = Client(worker.channel)
        x, few = np.ones(1, np.float32), np.array([1], np.int64)
        rounds = await rounds_for(client, "slow", 3)
        stream = open_stream(worker)
        for _ in range(20):
            await stream.write(request("slow", x=x, rounds=rounds))
        await home.registry.until(
            lambda: any(w.in_flight == 20 for w in home.registry.workers.values())
        )
        stream.cancel()
        await home.registry.until(
            lambda: any(w.in_flight == 0 for w in home.registry.workers.values())
        )
        assert (output(await client.infer("slow", x=x, rounds=few)) == x).all()
        await home.registry.until(
            lambda: any(
                v.counters.cancelled == 20
                for w in home.registry.workers.values()
                for v in w.versions
            )
        )
