"""What keys and limits cost at the edge: latency and Envoy's CPU per call, beside the same edge that asks for none.

Run: .venv/bin/python -m benchmarks.edge_policy [--rounds 60] [--calls 400] [--in-flight 1,16] [--revoked 1000]

One worker with its fast front serves a small MLP. Before it stand two edges, each a router and an Envoy of its own: one
asks for nothing; one verifies a token for each call, looks it up among revoked ones, keeps it within limits of key and
project, checks role and endpoint, and tells the worker who calls. Both are measured in turns, in short rounds, as a
machine that others share changes its pace within seconds. Told are medians over the rounds; what keys cost more is the
median of the rounds' own differences, with the quarters around it. Then it is measured how long a revocation takes:
from the word of metering to the first refused call. Answers are compared byte by byte; ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import mlp
from benchmarks.h2_load import Load, Result
from benchmarks.policy import key_id
from services.router.domain.policy import (
    Limits,
    LimitsChange,
    PolicyChange,
    PolicyUpdate,
    RevocationChange,
)
from services.router.domain.topology import Endpoint, Target
from services.rpc.names import EndpointName, VersionName
from tests.integration.router import keys
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.worker import registry_stand_in
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import running
from tests.metering_keys import KeyMint
from tests.models import artifact

MODEL, VERSION = "front", "1"
_ENDPOINTS = 10  # that the key names
_LIMITS = Limits(requests_per_second=1e6, burst=1_000_000, concurrent_requests=10_000)
_REVOCATIONS = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int
    calls: int
    in_flight: tuple[int, ...]
    revoked: int


@dataclass(slots=True)
class Edge:
    """One of both, its load, and what was seen of it by calls in flight."""

    name: str
    load: Load
    envoy: psutil.Process
    p50: dict[int, list[float]] = field(default_factory=dict)  # µs
    cpu: dict[int, list[float]] = field(default_factory=dict)  # µs per call
    wrong: int = 0

    def play(self, in_flight: int, calls: int) -> None:
        """One round."""
        before = _cpu(self.envoy)
        result: Result = self.load.keep(in_flight, calls=calls)
        self.p50.setdefault(in_flight, []).append(1e6 * result.quantile(0.5))
        spent = (_cpu(self.envoy) - before) / max(result.calls, 1)
        self.cpu.setdefault(in_flight, []).append(1e6 * spent)
        self.wrong += result.wrong


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def edge(folder: Path, worker: str, **settings: Any) -> EdgeUnderTest:
    """A router and an Envoy before the worker."""
    started = await EdgeUnderTest.start(folder, **settings)
    version = VersionName(MODEL, VERSION)
    started.set_workers({worker: {version}})
    started.set_endpoint(Endpoint(name=EndpointName(MODEL), targets=(Target(version, 100),)))
    return started


def policy(mint: KeyMint, plan: Plan) -> list[PolicyChange]:
    """Keys, limits, and some that were revoked."""
    key = "projects/default/keys/one"
    limits = [LimitsChange(name, _LIMITS) for name in ("projects/default", key)]
    gone = [
        RevocationChange(f"projects/default/keys/{key_id(f'revoked {i}')}", revoked=True)
        for i in range(plan.revoked)
    ]
    return [keys.signing(mint), *limits, *gone]


def compare(edges: Sequence[Edge], plan: Plan) -> None:
    """All rounds; the first one only warms up."""
    for in_flight in plan.in_flight:
        for number in range(plan.rounds + 1):
            for one in edges if number % 2 else reversed(edges):
                one.play(in_flight, plan.calls)
        for one in edges:
            del one.p50[in_flight][0], one.cpu[in_flight][0]


def told(edges: Sequence[Edge], plan: Plan) -> str:
    """The table."""
    lines = ["in flight | edge     | p50 µs                 | Envoy's CPU, µs per call"]
    for in_flight in plan.in_flight:
        for one in edges:
            p50 = statistics.median(one.p50[in_flight])
            cpu = statistics.mean(one.cpu[in_flight])
            lines.append(f"{in_flight:9} | {one.name:8} | {p50:6.1f}                 | {cpu:6.1f}")
        plain, keyed = edges
        low, middle, high = statistics.quantiles(
            (b - a for a, b in zip(plain.p50[in_flight], keyed.p50[in_flight], strict=True)), n=4
        )
        cpu = statistics.mean(keyed.cpu[in_flight]) - statistics.mean(plain.cpu[in_flight])
        lines.append(
            f"{in_flight:9} | more     | {middle:6.1f} ({low:6.1f} to {high:6.1f}) | {cpu:6.1f}"
        )
    return "\n".join(lines)


async def revocations(edge: EdgeUnderTest, mint: KeyMint) -> list[float]:
    """Milliseconds from the word that a key is revoked to the first call that is refused."""
    found = []
    for number in range(_REVOCATIONS):
        ident = key_id(f"gone {number}")
        token = mint.token(jti=ident)
        assert await keys.answer(edge, token, MODEL) != keys.REVOKED
        change = RevocationChange(f"projects/default/keys/{ident}", revoked=True)
        begin = time.perf_counter()
        edge.publisher.hear_policy(PolicyUpdate(changes=(change,), synced=True))
        while await keys.answer(edge, token, MODEL) != keys.REVOKED:
            pass
        found.append(1e3 * (time.perf_counter() - begin))
    return found


async def run(plan: Plan) -> int:
    """Measure and tell."""
    mint = KeyMint()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ip")))
        registry, address = Registry(), f"unix:{folder}/registry.sock"
        await stack.enter_async_context(registry_stand_in.serving(registry, address))
        version = f"models/{MODEL}/versions/{VERSION}"
        await registry.put(version, artifact.of_model(mlp.graph()), pool="default")
        worker = await stack.enter_async_context(running(folder, address, max_batch_size="128"))
        await registry.until_state(version, "READY")
        for name in ("plain", "keyed"):
            await asyncio.to_thread((folder / name).mkdir)
        plain = await edge(folder / "plain", worker.address)
        stack.push_async_callback(plain.stop)
        keyed = await edge(folder / "keyed", worker.address, asks_for_keys=True)
        stack.push_async_callback(keyed.stop)
        await plain.in_sync()
        await keys.tell(keyed, *policy(mint, plan), restart=True)
        endpoints = [*(f"endpoint-{i}" for i in range(_ENDPOINTS - 1)), MODEL]
        token = mint.token(jti="one", endpoints=endpoints)
        exchanges = mlp.exchanges(MODEL, VERSION)
        edges = [
            Edge(
                name,
                Load(one.settings.address, exchanges, fields=fields),
                psutil.Process(one.envoy.process.pid),
            )
            for name, one, fields in (("no keys", plain, ()), ("keys", keyed, keys.bearer(token)))
        ]
        await asyncio.to_thread(compare, edges, plan)
        took = sorted(await revocations(keyed, mint))
    sys.stdout.write(f"{told(edges, plan)}\n")
    sys.stdout.write(
        f"a revocation among {plan.revoked}: median {statistics.median(took):.1f} ms,"
        f" longest of {len(took)}: {took[-1]:.1f} ms\n"
    )
    wrong = sum(one.wrong for one in edges)
    if wrong:
        sys.stderr.write(f"{wrong} answers are wrong\n")
    return 1 if wrong else 0


def main() -> int:
    """Read the plan and run it."""
    parser = argparse.ArgumentParser(prog="benchmarks.edge_policy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--in-flight", default="1,16")
    parser.add_argument("--revoked", type=int, default=1000)
    given = parser.parse_args()
    plan = Plan(
        given.rounds, given.calls, tuple(map(int, given.in_flight.split(","))), given.revoked
    )
    return asyncio.run(run(plan))


if __name__ == "__main__":
    sys.exit(main())
