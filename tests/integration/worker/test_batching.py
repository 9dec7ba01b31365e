"""Requests that share runs in a real worker: results, refusals, deadlines, cancels."""

import asyncio
import urllib.request

import grpc
import numpy as np
import pytest
from inferplane.registry.v1 import model_pb2

from services.rpc.tcp_ports import free_port
from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, details, output, request
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, good

pytestmark = pytest.mark.usefixtures("both_fronts")

VERSION = "models/m/versions/1"


async def ready(home: Home, graph: bytes, **settings: int) -> None:
    await home.registry.put(
        VERSION,
        artifact.of_model(graph),
        model_pb2.VersionSettings(**settings),  # type: ignore[arg-type] # by name
    )


def batching_in_log(worker: WorkerProcess) -> str:
    (line,) = [text for text in worker.log.read_text().splitlines() if "version ready" in text]
    return line


async def test_only_the_guilty_request_of_a_batch_fails(home: Home) -> None:
    """32 requests at once, one with an index that the model refuses: 31 answers, each its own."""
    await ready(home, good.gather(), max_batch_size=64, max_queue_delay_us=20_000)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        client = Client(worker.channel)
        indices = [99 if n == 13 else n % 4 for n in range(32)]
        answers = await asyncio.gather(
            *(client.infer("m", x=np.array([i], np.int64)) for i in indices),
            return_exceptions=True,
        )
        for index, answer in zip(indices, answers, strict=True):
            if index == 99:
                assert isinstance(answer, grpc.aio.AioRpcError)
                assert answer.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert details(answer)["ErrorInfo"].reason == "MODEL_REFUSED_INPUTS"
            else:
                assert not isinstance(answer, BaseException)
                assert output(answer).tolist() == [index * 10]


async def test_requests_of_different_rows_get_their_own_rows_back(home: Home) -> None:
    """1 to 40 rows each, some more than max_batch_size: all rows come back in order."""
    await ready(home, good.affine(2.0), max_batch_size=16)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        client, numbers = Client(worker.channel), np.random.default_rng(3)
        inputs = [numbers.random((n, 4), dtype=np.float32) for n in (*range(1, 41), 0)]
        answers = await asyncio.gather(*(client.infer("m", x=x) for x in inputs))
        for x, answer in zip(inputs, answers, strict=True):
            assert (output(answer) == 2 * x).all()


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        pytest.param(good.centred(), "differs from that of single runs", id="mixes rows"),
        pytest.param(good.identity("FP32", (2, 2)), "free first dimension", id="fixed rows"),
    ],
)
async def test_versions_that_must_not_be_batched_are_not(
    home: Home, graph: bytes, words: str
) -> None:
    """The check finds them, status and log say why, and their answers are those of single runs."""
    await ready(home, graph)
    async with running(home.folder, home.registry_address) as worker:
        reported = await home.registry.until_state(VERSION, "READY")
        assert words in reported.execution.batching_off_reason
        assert reported.execution.max_batch_size == 1
        assert words in batching_in_log(worker)
        client = Client(worker.channel)
        xs = [np.full((2, 2), n, np.float32) for n in range(16)]
        answers = await asyncio.gather(*(client.infer("m", x=x) for x in xs))
        for x, answer in zip(xs, answers, strict=True):
            expected = x - x.mean(axis=0) if "single" in words else x
            assert (output(answer) == expected).all()


async def test_full_queue_deadline_and_cancel(home: Home) -> None:
    """While one call computes, the queue fills: beyond it RESOURCE_EXHAUSTED at once; late and cancelled ones leave."""
    await ready(home, good.counting())
    limits = {"max_queue_rows": "4", "concurrent_runs": "1", "max_batch_size": "1"}
    async with running(home.folder, home.registry_address, **limits) as worker:
        await home.registry.until_state(VERSION, "READY")
        client = Client(worker.channel)
        x, few = np.ones(1, np.float32), np.array([1], np.int64)
        long = request("m", x=x, rounds=np.array([1 << 40], np.int64))
        first = client.oip.ModelInfer(long)
        await home.registry.until(
            lambda: any(w.in_flight == 1 for w in home.registry.workers.values())
        )
        late = client.oip.ModelInfer(request("m", x=x, rounds=few), timeout=0.2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await late
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        waiting = [client.oip.ModelInfer(request("m", x=x, rounds=few)) for _ in range(4)]
        refused = client.oip.ModelInfer(request("m", x=x, rounds=few))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await refused
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(caught.value)["ErrorInfo"].reason == "QUEUE_FULL"
        assert details(caught.value)["RetryInfo"].retry_delay.ToNanoseconds() > 0
        waiting[0].cancel()
        await home.registry.until(
            lambda: any(
                v.counters.cancelled == 2 and v.counters.rejected == 1
                for w in home.registry.workers.values()
                for v in w.versions
            )
        )
        assert not first.done()
        for call in (first, *waiting):
            call.cancel()


async def test_metrics_and_counters(home: Home) -> None:
    """Prometheus and heartbeats count the same calls; a version that is gone has no labels left."""
    await ready(home, good.affine(2.0))
    port = free_port()
    where = {"metrics_address": f"127.0.0.1:{port}"}
    async with running(home.folder, home.registry_address, **where) as worker:
        await home.registry.until_state(VERSION, "READY")
        client = Client(worker.channel)
        for _ in range(3):
            await client.infer("m", x=np.ones((2, 4), np.float32))
        with pytest.raises(grpc.aio.AioRpcError):
            await client.infer("m", x=np.ones((2, 5), np.float32))
        reported = await home.registry.until(
            lambda: next(
                (
                    v.counters
                    for w in home.registry.workers.values()
                    for v in w.versions
                    if v.counters.succeeded == 3 and v.counters.failed == 1
                ),
                None,
            )
        )
        assert reported.duration_us > 0
        text = await asyncio.to_thread(scrape, port)
        assert f'inferplane_calls_total{{outcome="succeeded",version="{VERSION}"}} 3.0' in text
        assert f'inferplane_calls_total{{outcome="invalid",version="{VERSION}"}} 1.0' in text
        assert f'inferplane_batch_rows_sum{{version="{VERSION}"}} 6.0' in text
        assert f'inferplane_queued_rows{{version="{VERSION}"}} 0.0' in text
        await home.registry.remove(VERSION)
        await home.registry.until(
            lambda: all(not w.versions for w in home.registry.workers.values())
        )
        assert VERSION not in await asyncio.to_thread(scrape, port)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text: str = answer.read().decode()
        return text
