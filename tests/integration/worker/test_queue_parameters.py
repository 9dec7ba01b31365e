"""What callers may say about queueing, over gRPC and REST; requests of unlike lengths in a real worker."""

import asyncio
import json

import grpc
import numpy as np
import pytest
from inferplane.registry.v1 import model_pb2

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, details, output, request, rounds_for
from tests.integration.worker.worker_process import running
from tests.models import artifact, good, rows

pytestmark = pytest.mark.usefixtures("both_fronts")

VERSION = "models/m/versions/1"


async def test_priority_and_timeout_are_parameters(home: Home) -> None:
    """A timeout ends a request that waits behind a long run; a priority that isn't there names what is allowed."""
    settings = model_pb2.VersionSettings(instances=1, priority_levels=2)
    await home.registry.put(VERSION, artifact.of_model(good.counting()), settings)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        client, x, one = Client(worker.channel), np.ones(1, np.float32), np.ones(1, np.int64)
        rounds = await rounds_for(client, "m", 2.0)
        held = asyncio.create_task(client.infer("m", x=x, rounds=rounds))
        await asyncio.sleep(0)
        hurried = request("m", x=x, rounds=one)
        hurried.parameters["timeout"].int64_param = 20_000
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await client.oip.ModelInfer(hurried)
        assert not held.done()
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert details(late.value)["ErrorInfo"].reason == "QUEUE_TIMEOUT"
        body = {
            "parameters": {"priority": 3},
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]},
                {"name": "rounds", "datatype": "INT64", "shape": [1], "data": [1]},
            ],
        }
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await client.post("m", json.dumps(body).encode())
        (violation,) = details(wrong.value)["BadRequest"].field_violations
        assert violation.field == "parameters.priority"
        assert "3 given; allowed: 1 (first) to 2" in violation.description
        await held


async def test_unlike_lengths_are_answered_as_if_alone(home: Home) -> None:
    """64 requests at once, of 1 to 24 tokens: each answer is the one that it gets when nobody else asks."""
    padded = model_pb2.PaddedInput
    settings = model_pb2.VersionSettings(
        max_batch_size=16,
        padded_inputs=[padded(name="ids", axis=1), padded(name="mask", axis=1, mask=True)],
        trimmed_outputs=[model_pb2.TrimmedOutput(name="tokens", axis=1, input="ids", input_axis=1)],
    )
    await home.registry.put(VERSION, artifact.of_model(rows.embedding(masked=True)), settings)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        client = Client(worker.channel)
        texts = [np.arange(1, 2 + n % 24, dtype=np.int64).reshape(1, -1) % 8 for n in range(64)]

        async def ask(ids: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> list[float]:
            answer = await client.infer("m", ids=ids, mask=np.ones_like(ids))
            assert output(answer, 1).shape == (1, ids.shape[1], 3)
            return [float(x) for x in (*output(answer).ravel(), *output(answer, 1).ravel())]

        alone = [await ask(ids) for ids in texts[:24]]
        together = await asyncio.gather(*(ask(ids) for ids in texts))
        for n, answer in enumerate(together):
            assert answer == pytest.approx(alone[n % 24], rel=1e-5)
        assert "padding_off" not in worker.log.read_text()
