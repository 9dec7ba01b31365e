"""What counting costs a worker: calls per second and CPU per call, with and without, in one run.

Run: .venv/bin/python -m benchmarks.usage_cost [--seconds 6] [--in-flight 1,32,128] [--rounds 3]

One worker process for each way to count (not at all; rows put on the disk never, each second, before the answer)
serves the same small MLP over the fast front; each sends its rows to one metering stand-in. A generator process asks
for single rows, with the headers that the edge sets; answers are compared byte by byte. Ways take turns, so that a
machine that is busy is busy for all; the best round of each counts, and ratios are to the worker that doesn't count.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from inferplane.metering.v1.usage_service_pb2 import RecordUsageRequest

from benchmarks import mlp
from benchmarks.front import VERSION, Cell, Order, Server, measure
from tests.integration.worker import metering_stand_in, registry_stand_in
from tests.integration.worker.metering_stand_in import Metering
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import running
from tests.models import artifact

_FIELDS = (
    ("x-request-id", "f9c2b5b4-3d0f-4a51-9d68-5b2f5b0f7d11"),
    ("x-inferplane-project", "default"),
    ("x-inferplane-key", "0b5d2c1e"),
    ("x-envoy-attempt-count", "1"),
)
_WAYS = ("off", "never", "interval", "always")


class Uncounted(Metering):
    """Looks at no rows: there are millions."""

    def take(self, request: RecordUsageRequest) -> int:
        following = request.first_sequence + len(request.batch.subject)
        self.wanted[request.source] = int(following)
        return int(following)


@asynccontextmanager
async def workers(folder: Path) -> AsyncIterator[dict[str, Server]]:
    """One for each way, READY."""
    registry, address = Registry(), f"unix:{folder}/registry.sock"
    metering, counted = Uncounted(), f"unix:{folder}/metering.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry_stand_in.serving(registry, address))
        await stack.enter_async_context(metering_stand_in.serving(metering, counted))
        found = {}
        for way in _WAYS:
            version = f"models/{way}/versions/{VERSION}"
            await registry.put(version, artifact.of_model(mlp.graph()), pool=way)
            variables = {"pool": way, "max_batch_size": "128"}
            if way != "off":
                variables |= {"metering_address": counted, "usage_fsync": way}
            worker = await stack.enter_async_context(running(folder, address, **variables))
            await registry.until_state(version, "READY")
            found[way] = Server(way, worker.address, way, [worker.process.pid])
        yield found


async def compare(seconds: float, in_flight: list[int], rounds: int) -> None:
    """The table."""
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        async with workers(Path(name)) as servers:
            print(
                "| in flight | counted | calls/s | p50 µs | CPU µs/call | CPU, off = 1 | calls/s, off = 1 |"
            )
            print("|---|---|---|---|---|---|---|")
            for number in in_flight:
                best: dict[str, Cell] = {}
                for _ in range(rounds):
                    for way, server in servers.items():
                        cell = await measure(Order(server, number, 1, seconds, _FIELDS))
                        if way not in best or cell.server < best[way].server:
                            best[way] = cell
                off = best["off"]
                for way, cell in best.items():
                    print(
                        f"| {number} | {way} | {cell.calls:,.0f} | {cell.p50:,.0f} | {cell.server:.1f} |"
                        f" {cell.server / off.server:.3f} | {cell.calls / off.calls:.3f} |"
                    )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="per cell")
    parser.add_argument("--in-flight", default="1,32,128")
    parser.add_argument("--rounds", type=int, default=3)
    said = parser.parse_args()
    numbers = [int(number) for number in said.in_flight.split(",")]
    asyncio.run(compare(said.seconds, numbers, said.rounds))


if __name__ == "__main__":
    main()
