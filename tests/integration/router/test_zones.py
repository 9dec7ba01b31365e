"""Zones, with a real Envoy: its own is preferred, and others take over as much as is lost, without a failed call."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.router.domain.topology import Endpoint, Target
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest
from tests.integration.router.load import Outcome, callers
from tests.integration.router.waiting import until

pytestmark = pytest.mark.extended

_ROOT = Path(__file__).parents[3]
_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class ByWorker:
    """Calls, counted by the worker that answers."""

    edge: EdgeUnderTest

    async def infer(self) -> Any:
        response = await self.edge.infer(timeout=60)
        response.model_version = response.parameters["worker"].string_param
        return response


@asynccontextmanager
async def zoned(folder: Path) -> AsyncIterator[tuple[EdgeUnderTest, dict[str, Any]]]:
    """An edge in zone a; processes a1, a2, b1 and b2 are workers of the zones a and b."""
    edge = await EdgeUnderTest.start(folder, zone="a")
    processes: dict[str, Any] = {}
    try:
        for name in ("a1", "a2", "b1", "b2"):
            processes[name] = await started(folder, name)
        edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
        tell(edge, *processes)
        await edge.in_sync()
        yield edge, processes
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        await edge.stop()


def tell(edge: EdgeUnderTest, *names: str) -> None:
    """These workers have leases."""
    addresses = {name: f"unix:{edge.folder}/{name}.sock" for name in names}
    edge.set_workers(
        {address: {V1} for address in addresses.values()},
        zones={address: name[0] for name, address in addresses.items()},
    )


async def started(folder: Path, name: str) -> Any:
    """A worker that serves."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.router.echo_process"),
        *(name, f"unix:{folder}/{name}.sock", str(V1)),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    async with asyncio.timeout(_SECONDS):
        while await process.stdout.readline() != b"ready\n":
            assert process.returncode is None
    return process


async def kill(process: Any) -> None:
    """As the kernel does."""
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def workers(outcome: Outcome, count: int = 300) -> Counter[str]:
    """Which workers answered the next calls."""
    before = Counter(outcome.answers)
    await outcome.more(count)
    return outcome.answers - before


async def shares(outcome: Outcome, count: int = 300) -> Counter[str]:
    """Which zones did."""
    found: Counter[str] = Counter()
    for name, answers in (await workers(outcome, count)).items():
        found[name[0]] += answers
    return found


async def test_a_zone_is_lost_and_comes_back(folder: Path) -> None:
    """1. All well: the own zone answers. 2. Half of it is killed: the other takes about half. 3. All of it is killed:
    the other takes all. 4. It is back: it answers all again. No call fails.
    """
    async with zoned(folder) as (edge, processes):
        await until(lambda: _is_healthy(edge), seconds=_SECONDS)
        async with callers(ByWorker(edge), 4) as outcome:
            told = {"well": await shares(outcome)}
            assert set(told["well"]) == {"a"}
            await kill(processes["a1"])
            await until(lambda: outcome.answers["b1"] + outcome.answers["b2"] > 20, _SECONDS)
            told["half is lost"] = half = await shares(outcome)
            assert 0.3 < half["b"] / half.total() < 0.7
            tell(edge, "a2", "b1", "b2")
            await edge.in_sync()
            await outcome.more(20)
            told["its lease is over"] = rest = await workers(outcome)
            assert (len(rest), 0.3 < rest["a2"] / rest.total() < 0.7) == (2, True)
            await kill(processes["a2"])
            await outcome.more(100)
            told["all is lost"] = await shares(outcome)
            assert set(told["all is lost"]) == {"b"}
            for name in ("a1", "a2"):
                processes[name] = await started(folder, name)
            tell(edge, *processes)
            async with asyncio.timeout(_SECONDS):
                while set(found := await shares(outcome, 100)) != {"a"}:
                    pass
            told["back"] = found
        print({when: dict(counts) for when, counts in told.items()}, dict(outcome.failures))
        assert outcome.failures == {}


async def _is_healthy(edge: EdgeUnderTest) -> bool:
    return await edge.envoy.counter(f"cluster.{V1}.membership_healthy") == 4
