"""The worker's fronts beside a naive server: calls per second, latency, CPU per call, straight and through Envoy.

Run: .venv/bin/python -m benchmarks.front [--seconds 2] [--in-flight 1,8,32,128] [--skip-edge]

One process each: the worker by its fast front, the worker by grpcio, a naive grpc.aio server (protobuf, `session.run`
inline) and an echo by grpc.aio, which costs what grpcio alone costs. All serve the same small MLP; a generator process
asks for single rows, so many in flight on one connection or more. Answers are compared byte by byte with those of bare
ONNX Runtime, before the timing and in it (the echo's: with its one answer). Machines differ and are shared: each cell
is the best of some repeats, and CPU per call is told as a multiple of the echo's too. Ends with 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks import mlp, naive
from benchmarks.h2_load import Exchange, Load
from services.router.domain.topology import Endpoint, Target
from services.rpc.names import EndpointName, VersionName
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.worker import registry_stand_in
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import running
from tests.models import artifact

FRONTS = {"front": "auto", "grpcio": "grpcio"}
VERSION = "1"
_CHECKED = 1000  # calls that are compared, and warm it up, before the timing
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Server:
    """What is measured: a server, or an edge before it."""

    name: str
    address: str
    model: str  # or endpoint
    pids: list[int]  # the server's, Envoy's


@dataclass(frozen=True, slots=True)
class Order:
    """What a generator process is to do."""

    server: Server
    in_flight: int
    connections: int
    seconds: float
    fields: tuple[tuple[str, str], ...] = ()  # further headers of each call


@dataclass(frozen=True, slots=True)
class Cell:
    """What it found; times in µs, CPU per call."""

    calls: float  # per second
    p50: float
    p99: float
    server: float
    envoy: float
    generator: float
    wrong: int


# The generator process


def generate(order: Order) -> Cell:
    """Check, then time; the repeat in which calls cost the server least."""
    server = order.server
    exchanges = mlp.exchanges(server.model, VERSION)
    if server.name == "echo":
        exchanges = [Exchange(e.body, exchanges[0].answer) for e in exchanges]
    fields = [(name, value) for name, value in order.fields]
    load = Load(server.address, exchanges, min(order.connections, order.in_flight), fields)
    checked = load.keep(order.in_flight, calls=_CHECKED)
    if checked.wrong:
        raise AssertionError(f"{checked.wrong} of {_CHECKED} answers are wrong")
    cells = [_timed(load, order) for _ in range(_REPEATS)]
    load.close()
    wrong = sum(cell.wrong for cell in cells)
    best = min(cells, key=lambda cell: cell.server + cell.envoy)
    return Cell(**{**asdict(best), "calls": max(c.calls for c in cells), "wrong": wrong})


def _timed(load: Load, order: Order) -> Cell:
    watched = [psutil.Process(pid) for pid in (*order.server.pids, psutil.Process().pid)]
    before = [_cpu(process) for process in watched]
    result = load.keep(order.in_flight, seconds=order.seconds / _REPEATS)
    spent = [
        1e6 * (_cpu(process) - was) / max(result.calls, 1)
        for process, was in zip(watched, before, strict=True)
    ]
    return Cell(
        calls=result.calls / result.seconds,
        p50=1e6 * result.quantile(0.5),
        p99=1e6 * result.quantile(0.99),
        server=spent[0],
        envoy=sum(spent[1:-1]),
        generator=spent[-1],
        wrong=result.wrong,
    )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(order: Order) -> Cell:
    """One cell, by a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.front", "--generate", json.dumps(asdict(order))),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the generator ended with {process.returncode}, having said {out!r}")
    return Cell(**json.loads(out))


# The servers


@asynccontextmanager
async def workers(folder: Path) -> AsyncIterator[dict[str, Server]]:
    """One worker for each front, READY."""
    registry, address = Registry(), f"unix:{folder}/registry.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry_stand_in.serving(registry, address))
        found = {}
        for front, setting in FRONTS.items():
            # A model each, since one registry serves both; its name is as long as an endpoint's through the edge.
            version = f"models/{front}/versions/{VERSION}"
            await registry.put(version, artifact.of_model(mlp.graph()), pool=front)
            variables = {"front": setting, "pool": front, "max_batch_size": "128"}
            worker = await stack.enter_async_context(running(folder, address, **variables))
            await registry.until_state(version, "READY")
            found[front] = Server(front, worker.address, front, [worker.process.pid])
        yield found


@asynccontextmanager
async def others(folder: Path) -> AsyncIterator[dict[str, Server]]:
    """The naive server and the echo."""
    async with AsyncExitStack() as stack:
        found = {}
        for what in ("naive", "echo"):
            address = f"unix:{folder}/{what}.sock"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.naive", what, address),
                stdout=asyncio.subprocess.PIPE,
            )
            stack.push_async_callback(_ended, process)
            assert process.stdout is not None
            await process.stdout.readline()
            found[what] = Server(what, address, naive.NAME, [process.pid])
        yield found


async def _ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


@asynccontextmanager
async def edge(folder: Path, direct: dict[str, Server]) -> AsyncIterator[dict[str, Server]]:
    """A router and an Envoy before both workers, each with an endpoint of its own."""
    started = await EdgeUnderTest.start(folder)
    try:
        versions = {front: VersionName(front, VERSION) for front in direct}
        started.set_workers({server.address: {versions[f]} for f, server in direct.items()})
        for front, version in versions.items():
            started.set_endpoint(
                Endpoint(name=EndpointName(front), targets=(Target(version, 100),))
            )
        await started.in_sync()
        envoy = started.envoy.process.pid
        yield {
            front: Server(front, started.settings.address, front, [*server.pids, envoy])
            for front, server in direct.items()
        }
    finally:
        await started.stop()


# The tables


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of all servers."""

    in_flight: list[int]
    connections: int
    seconds: float
    fields: tuple[tuple[str, str], ...] = ()  # further headers of each call


async def compare(title: str, servers: dict[str, Server], plan: Plan) -> dict[str, list[Cell]]:
    """A table: the servers in turns."""
    say(
        f"\n{title}\n\n| in flight | server | calls/s | p50 µs | p99 µs | server CPU µs | Envoy CPU µs"
    )
    say(
        " | CPU, echo = 1 | calls/s, naive = 1 | generator CPU µs |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    found: dict[str, list[Cell]] = {name: [] for name in servers}
    for in_flight in plan.in_flight:
        for name, server in servers.items():
            order = Order(server, in_flight, plan.connections, plan.seconds)
            found[name].append(await measure(order))
        row = {name: cells[-1] for name, cells in found.items()}
        for name, cell in row.items():
            say(_row(in_flight, name, cell, row))
    return found


def _row(in_flight: int, name: str, cell: Cell, row: dict[str, Cell]) -> str:
    echo, plain = row.get("echo"), row.get("naive")
    spent = cell.server + cell.envoy
    values = (
        f"{in_flight}",
        name,
        f"{cell.calls:,.0f}",
        f"{cell.p50:,.0f}",
        f"{cell.p99:,.0f}",
        f"{cell.server:.1f}",
        f"{cell.envoy:.1f}" if cell.envoy else "–",
        f"{spent / echo.server:.3f}" if echo else "–",
        f"{cell.calls / plain.calls:.2f}" if plain else "–",
        f"{cell.generator:.1f}",
    )
    return f"| {' | '.join(values)} |\n"


async def benchmark(plan: Plan, *, with_edge: bool) -> int:
    """Both tables."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="ip-bench-") as name:
        folder = Path(name)
        async with workers(folder) as ours, others(folder) as theirs:
            found = await compare("Unix socket", {**ours, **theirs}, plan)
            wrong += sum(cell.wrong for cells in found.values() for cell in cells)
            if with_edge:
                async with edge(folder, ours) as through:
                    # The echo is asked again: what is a multiple of it must be of the same minutes.
                    servers = {**through, "echo": theirs["echo"]}
                    found = await compare("Through Envoy (TCP), the echo straight", servers, plan)
                    wrong += sum(cell.wrong for cells in found.values() for cell in cells)
    return 1 if wrong else 0


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a cell")
    parser.add_argument("--in-flight", default="1,8,32,128")
    parser.add_argument("--connections", type=int, default=1, help="at most")
    parser.add_argument("--skip-edge", action="store_true")
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.generate:
        order = json.loads(given.generate)
        order["server"] = Server(**order["server"])
        say(json.dumps(asdict(generate(Order(**order)))))
        return 0
    plan = Plan([int(n) for n in given.in_flight.split(",")], given.connections, given.seconds)
    # Not uvloop: it forks with gRPC's threads about, and twice a child crashed before it said anything.
    return asyncio.run(benchmark(plan, with_edge=not given.skip_edge))


if __name__ == "__main__":
    sys.exit(main())
