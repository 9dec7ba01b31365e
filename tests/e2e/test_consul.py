"""A whole mesh whose workers are found by a real Consul, which dies under load and comes back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from benchmarks.load import Report, run
from services.cli.demo import digits
from tests.consul_agent import ConsulAgent, eventually, needs_consul
from tests.e2e import mesh as meshes
from tests.e2e.mesh import Mesh
from tests.e2e.oip_calls import digit_samples

pytestmark = [pytest.mark.extended, needs_consul]

_RATE = 100.0  # calls a second
_MOST = 32  # in flight
_DEADLINE = 30.0  # seconds for a call


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[ConsulAgent]:
    """It forgets all when it is killed."""
    agent = ConsulAgent(tmp_path)
    await agent.start()
    yield agent
    agent.kill()


@pytest.fixture
def mesh(agent: ConsulAgent, tmp_path: Path, files: dict[str, Path]) -> Iterator[Mesh]:
    """Two workers with `digits`, found by Consul."""
    variables = {"INFERPLANE_DISCOVERY": "consul", "INFERPLANE_CONSUL_ADDRESS": agent.url}
    with meshes.running(tmp_path / "state", variables=variables) as started:
        started.cli("models", "push", "digits", str(files["digits@1"]))
        started.cli("deploy", "digits@1")
        yield started


@pytest.fixture
def labels(files: dict[str, Path]) -> dict[str, npt.NDArray[np.int64]]:
    """What digits says of the held-out images."""
    session = onnxruntime.InferenceSession(files["digits@1"])
    images = digits.load().held_out_images
    return {"1": session.run(["label"], {"image": images})[0]}


async def _status(mesh: Mesh) -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(mesh.json, "status")
    return found


async def _passing(agent: ConsulAgent) -> int:
    return len(await agent.ask("health/service/inferplane-worker?passing"))


async def test_consul_dies_under_load(
    agent: ConsulAgent, mesh: Mesh, labels: dict[str, npt.NDArray[np.int64]]
) -> None:
    """Consul killed, away, back and empty, a worker killed after it: no call fails, and the routes stay as they are."""
    report, stop = Report(), asyncio.Event()
    calling = asyncio.create_task(
        run(
            mesh.address,
            digit_samples(mesh, labels),
            calls=100_000,
            rate=_RATE,
            deadline=_DEADLINE,
            most=_MOST,
            stop=stop,
            into=report,
        )
    )

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(100), report.grown:
            await report.grown.wait_for(holds)

    async def more() -> None:
        seen = len(report.outcomes)
        await until(lambda: len(report.outcomes) >= seen + 100)

    await more()
    before = await _status(mesh)
    assert len(before["workers"]) == 2
    agent.kill()
    await more()
    away = await _status(mesh)
    assert not away["router"].get("discovery_connected", False)
    await agent.start()
    await eventually(lambda: _has(_passing(agent), 2), "both workers are in Consul again")
    await eventually(lambda: _is_heard(mesh), "the router hears Consul again")
    await more()
    after = await _status(mesh)
    for status in (before, away, after):
        assert status["router"]["snapshot_version"] == before["router"]["snapshot_version"]
        assert [w["name"] for w in status["workers"]] == [w["name"] for w in before["workers"]]
    victim = mesh.processes("services.worker")[0]
    victim.kill()
    await eventually(lambda: _other(mesh, before), "another worker is in its place")
    await more()
    stop.set()
    await calling
    assert report.failures == []


async def _is_heard(mesh: Mesh) -> bool:
    return bool((await _status(mesh))["router"].get("discovery_connected", False))


async def _has(found: Any, count: int) -> bool:
    return bool(await found == count)


async def _other(mesh: Mesh, before: dict[str, Any]) -> bool:
    """Whether two workers are live, one of them new, and both READY."""
    workers = (await _status(mesh))["workers"]
    known = {worker["name"] for worker in before["workers"]}
    ready = [
        worker["name"]
        for worker in workers
        if any(v["state"] == "LOAD_STATE_READY" for v in worker["versions"])
    ]
    return len(workers) == len(ready) == 2 and len(known & set(ready)) == 1
