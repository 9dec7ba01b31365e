"""A model that kills the process it is served in: one worker, and no other."""

import grpc
import numpy as np
import pytest

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, details, output, request
from tests.integration.worker.worker_process import running
from tests.models import artifact, good

VERSION = "models/m/versions/1"
LEAST = np.iinfo(np.int64).min


def pair(a: int, b: int) -> dict[str, np.ndarray]:
    return {"a": np.array([a], np.int64), "b": np.array([b], np.int64)}


async def test_a_request_that_crashes_its_model_kills_one_worker(home: Home) -> None:
    """The next worker that gets it, as Envoy tries it again, answers INVALID_ARGUMENT, however often, and lives."""
    await home.registry.put(VERSION, artifact.of_model(good.divided("Div")))
    async with (
        running(home.folder, home.registry_address) as first,
        running(home.folder, home.registry_address) as second,
        running(home.folder, home.registry_address) as third,
    ):
        await home.registry.until(
            lambda: (
                sum(
                    v.execution.max_batch_size > 0
                    for w in home.registry.workers.values()
                    for v in w.versions
                )
                == 3
            )
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await Client(first.channel).infer("m", **pair(LEAST, -1))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await first.ended() < 0
        client, again = Client(second.channel), (("x-envoy-attempt-count", "2"),)
        for metadata in (again, (), ()):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.oip.ModelInfer(
                    request("m", **pair(LEAST, -1)), metadata=metadata, timeout=30
                )
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert details(caught.value)["ErrorInfo"].reason == "MODEL_CRASHED"
        assert output(await client.infer("m", **pair(9, 2))).tolist() == [4]
        assert second.is_alive
        # A call that comes again has the third one look at once (by itself it does so each second).
        harmless = request("m", **pair(9, 2))
        await Client(third.channel).oip.ModelInfer(harmless, metadata=again, timeout=30)
        with pytest.raises(grpc.aio.AioRpcError, match="crashes on these inputs"):
            await Client(third.channel).infer("m", **pair(LEAST, -1))
        assert third.is_alive
