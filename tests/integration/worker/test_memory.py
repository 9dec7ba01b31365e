"""Memory that stays flat: models that come and go, shapes that vary, large requests, requests too large to compute."""

import asyncio
import json
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest

from services.rpc import settings
from tests.integration.worker.conftest import Home
from tests.integration.worker.memory_curve import Curve
from tests.integration.worker.oip_client import Client, details, output
from tests.integration.worker.worker_process import running
from tests.models import artifact, good
from tests.models.wide import WIDTH, steps

pytestmark = pytest.mark.extended

VERSION = "models/m/versions/1"
MIB = 2**20


async def test_models_and_shapes_leave_nothing() -> None:
    """12 loads and unloads, then 60 shapes, in a process: within 5 % of what the first few left.

    `python -m benchmarks.memory` does it 100 and 1,000 times.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.worker.memory_curve"),
        *("--cycles", "12", "--shapes", "60"),
        stdout=asyncio.subprocess.PIPE,
        env=settings.environment_for_children(),
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    cycles, sweep = Curve(**json.loads(out.splitlines()[-1])).growth()
    assert cycles < 1.05
    assert sweep < 1.05


def resident(pid: int) -> int:
    """Bytes that a process occupies."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.usefixtures("both_fronts")
async def test_large_requests_are_not_kept(home: Home) -> None:
    """384 MiB of requests and answers go through: the worker keeps less than a quarter of it."""
    await home.registry.put(VERSION, artifact.of_model(good.identity("FP32", ("n", "m"))))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        client, pid = Client(worker.channel), worker.process.pid
        x = np.ones((3, MIB), np.float32)  # 12 MiB
        for _ in range(3):
            await client.infer("m", x=x)
        before = resident(pid)
        for _ in range(16):
            await client.infer("m", x=x)
        assert resident(pid) - before < 96 * MIB


async def test_a_request_too_large_to_compute_fails_alone(home: Home) -> None:
    """Its run would take 2 GiB where 200 MiB are allowed: RESOURCE_EXHAUSTED; others are answered, the worker lives."""
    await home.registry.put(VERSION, artifact.of_model(steps()))
    bound = str(200 * MIB)
    async with running(home.folder, home.registry_address, run_memory_bytes=bound) as worker:
        await home.registry.until_state(VERSION, "READY")
        client = Client(worker.channel)
        small = [np.full((1, n, WIDTH), n, np.float32) for n in (1, 2, 3, 4)]
        alone = [output(await client.infer("m", x=x)) for x in small]
        large = np.ones((1, 1 << 19, WIDTH), np.float32)
        refused, *answers = await asyncio.gather(
            *(client.infer("m", x=x) for x in (large, *small)), return_exceptions=True
        )
        assert isinstance(refused, grpc.aio.AioRpcError)
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(refused)["ErrorInfo"].reason == "OUT_OF_MEMORY"
        for answer, expected in zip(answers, alone, strict=True):
            assert not isinstance(answer, BaseException), answer
            assert output(answer) == pytest.approx(expected, rel=1e-5)
        assert worker.is_alive
