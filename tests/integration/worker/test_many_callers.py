"""However many callers there are, the worker's memory and its metrics stay as they are.

`python -m benchmarks.bounded_memory` does it with 100,000 keys and a million requests, through the edge.
"""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from inference import open_inference_pb2 as oip

from services.rpc.tcp_ports import free_port
from tests.integration.worker import metering_stand_in
from tests.integration.worker.conftest import Home
from tests.integration.worker.metering_stand_in import Metering
from tests.integration.worker.oip_client import Client, request
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, good

pytestmark = pytest.mark.extended

VERSION = "models/m/versions/1"
WARM, CALLERS, AT_ONCE = 5_500, 5_000, 64  # tables of callers have 4,096 places
LARGEST_GROWTH = 4 * 2**20  # a kilobyte for each caller would be more


def resident(pid: int) -> int:
    """Bytes that a process occupies, but for files of a fixed size that it maps."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


async def series(address: str) -> set[str]:
    """All series of a process, by name and labels."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://{address}/metrics")).text
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def headers(number: int) -> tuple[tuple[str, str], ...]:
    """Of a caller like no other, as the edge sets them."""
    return (
        ("x-inferplane-project", f"project-{number}"),
        ("x-inferplane-key", f"{number:032x}"),
        ("x-inferplane-endpoint", f"endpoint-{number}"),
        ("x-inferplane-version", VERSION),
        ("x-request-id", str(uuid.UUID(int=number))),
    )


async def call(worker: WorkerProcess, number: int) -> None:
    """A caller's call; some ask for what isn't there, under a name of their own."""
    client = Client(worker.channel)
    asked = request("m", x=np.full(1, number, np.float32))
    if number % 10 == 8:
        asked.model_name = f"model-{number}"
        with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
            await client.oip.ModelInfer(asked)
    elif number % 10 == 9:
        unknown: Any = worker.channel.unary_unary(
            f"/service-{number}/Method", oip.ModelInferRequest.SerializeToString
        )
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await unknown(asked)
    else:
        asked.model_name = f"endpoint-{number}"
        await client.oip.ModelInfer(asked, metadata=headers(number))


async def call_all(worker: WorkerProcess, numbers: range) -> None:
    """A few at once."""
    waiting = iter(numbers)

    async def one_after_another() -> None:
        for number in waiting:
            await call(worker, number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(one_after_another())


async def test_callers_leave_nothing_behind(home: Home) -> None:
    """5,000 projects, keys, endpoints, unknown models and methods: the same series, and no more memory."""
    metrics = f"127.0.0.1:{free_port()}"
    await home.registry.put(VERSION, artifact.of_model(good.identity("FP32")))
    metering = f"unix:{home.folder}/metering.sock"
    where = {"metrics_address": metrics, "metering_address": metering}
    async with (
        metering_stand_in.serving(Metering(), metering),
        running(home.folder, home.registry_address, **where) as worker,
    ):
        await home.registry.until_state(VERSION, "READY")
        await call_all(worker, range(WARM))
        before, known = resident(worker.process.pid), await series(metrics)
        await call_all(worker, range(WARM, WARM + CALLERS))
        grown = resident(worker.process.pid) - before
        assert grown < LARGEST_GROWTH
        assert await series(metrics) == known
