"""Everything that a rollout does, under 1,000 calls a second: how fast traffic moves, and whether any call fails.

Run: .venv/bin/python -m benchmarks.rollout [--calls 100000] [--rate 1000]

Starts its own mesh of two workers in a temporary folder. Every answer is compared with what the
version that answered says on bare ONNX Runtime. Ends with 1 if a call failed or was wrong. Takes
calls / rate seconds and a little more.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import onnxruntime
import uvloop
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.discovery.v1 import discovery_service_pb2, discovery_service_pb2_grpc
from inferplane.registry.v1 import (
    endpoint_pb2,
    endpoint_service_pb2,
    endpoint_service_pb2_grpc,
    placement_pb2,
)
from inferplane.router.v1 import router_service_pb2, router_service_pb2_grpc

from benchmarks.load import Report, run
from services.cli.demo import digits
from tests.e2e.mesh import Mesh, eventually, running
from tests.e2e.oip_calls import digit_samples


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was done while calls flowed."""

    what: str
    begin: float  # monotonic seconds
    end: float
    note: str = ""


async def move(mesh: Mesh, report: Report, version: str) -> Event:
    """Send everything to `version`; the note says when the last call went elsewhere."""
    stub_request = endpoint_service_pb2.UpdateEndpointRequest(
        endpoint=endpoint_pb2.Endpoint(
            name="endpoints/digits",
            targets=[endpoint_pb2.Target(target=f"models/digits/versions/{version}", weight=100)],
        ),
        update_mask=FieldMask(paths=["targets"]),
    )
    async with mesh.async_channel() as channel:
        stub = endpoint_service_pb2_grpc.EndpointServiceStub(channel)
        await stub.GetEndpoint(endpoint_service_pb2.GetEndpointRequest(name="endpoints/digits"))
        begin = time.monotonic()
        await stub.UpdateEndpoint(stub_request, timeout=10)
        end = time.monotonic()
    await asyncio.sleep(2)
    old = [o.start for o in report.outcomes if o.start > begin and o.version != version]
    last = max(old, default=begin) - begin
    return Event(
        f"traffic set: all to version {version}",
        begin,
        end,
        f"last call on the old split began {last * 1e3:.0f} ms after the order",
    )


async def _by_cli(mesh: Mesh, what: str, *arguments: str) -> Event:
    begin = time.monotonic()
    await asyncio.to_thread(mesh.cli, *arguments)
    return Event(what, begin, time.monotonic())


async def _add_and_drain(mesh: Mesh) -> Event:
    begin = time.monotonic()
    extra = mesh.start_cli("worker")
    await asyncio.to_thread(eventually, lambda: _ready(mesh) == 3, seconds=60, what="third worker")
    ready = time.monotonic()
    await asyncio.sleep(5)
    extra.send_signal(signal.SIGTERM)
    await asyncio.to_thread(extra.communicate, timeout=60)
    note = f"ready after {ready - begin:.1f} s; drained, exit {extra.returncode}"
    return Event("worker added, then drained", begin, time.monotonic(), note)


def _ready(mesh: Mesh, pids: set[int] | None = None) -> int:
    """Workers on which everything is READY; asked by a plain call, which costs less than a command."""
    with mesh.channel() as channel:
        stub = discovery_service_pb2_grpc.DiscoveryServiceStub(channel)
        workers = stub.ListWorkers(discovery_service_pb2.ListWorkersRequest(), timeout=5).workers
    ready = placement_pb2.LOAD_STATE_READY
    return sum(
        bool(w.versions) and all(v.state == ready for v in w.versions)
        for w in workers
        if pids is None or w.pid in pids
    )


def _answers(mesh: Mesh) -> bool:
    """Whether router and registry both answer at the edge."""
    with mesh.channel() as channel:
        router = router_service_pb2_grpc.RouterServiceStub(channel)
        endpoints = endpoint_service_pb2_grpc.EndpointServiceStub(channel)
        try:
            router.GetStatus(router_service_pb2.GetStatusRequest(), timeout=5)
            endpoints.ListEndpoints(endpoint_service_pb2.ListEndpointsRequest(), timeout=5)
        except grpc.RpcError:
            return False
    return True


async def _kill(mesh: Mesh, module: str, back: Callable[[], bool]) -> Event:
    begin = time.monotonic()
    mesh.processes(module)[0].kill()
    took = await asyncio.to_thread(eventually, back, seconds=60, what=f"{module} is back")
    return Event(f"kill -9 of a {module}", begin, time.monotonic(), f"back after {took:.1f} s")


async def story(mesh: Mesh, report: Report, files: dict[str, Path], pause: float) -> list[Event]:
    """All events one after another, with pauses between."""
    first_pids = {p.pid for p in mesh.processes("services.worker")}

    def workers_back() -> bool:
        alive = {p.pid for p in mesh.processes("services.worker")}
        return len(alive) == 2 and alive != first_pids and _ready(mesh, alive) == 2

    steps: list[Callable[[], Awaitable[Event]]] = [
        lambda: _by_cli(mesh, "version 2 pushed", "models", "push", "digits@2", str(files["2"])),
        lambda: _by_cli(mesh, "version 2 deployed beside 1", "deploy", "digits@2", "-w", "10"),
        *(lambda v=v: move(mesh, report, v) for v in ("2", "1", "2", "1", "2")),
        lambda: _add_and_drain(mesh),
        lambda: _kill(mesh, "services.worker", workers_back),
        lambda: _kill(mesh, "services.router", lambda: _answers(mesh)),
        lambda: _kill(mesh, "services.registry", lambda: _answers(mesh)),
        lambda: move(mesh, report, "1"),
    ]
    events = []
    began = time.monotonic()
    for step in steps:
        await asyncio.sleep(pause)
        events.append(await step())
        sys.stdout.write(
            f"{events[-1].begin - began:6.2f} s  {events[-1].what}:"
            f" {events[-1].end - events[-1].begin:.2f} s; {events[-1].note}\n"
        )
    return events


async def measure(mesh: Mesh, files: dict[str, Path], calls: int, rate: float) -> Report:
    """Load and story side by side."""
    images = digits.load().held_out_images
    expected = {
        v: onnxruntime.InferenceSession(path).run(["label"], {"image": images})[0]
        for v, path in files.items()
    }
    report = Report()
    stop = asyncio.Event()
    load = asyncio.create_task(
        run(
            mesh.address,
            digit_samples(mesh, expected),
            calls=calls,
            rate=rate,
            stop=stop,
            into=report,
        )
    )
    await story(mesh, report, files, pause=min(3.0, calls / rate / 20))
    return await load


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=1000.0)
    order = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inferplane-bench-") as name:
        folder = Path(name)
        files = {v: digits.export(v, folder) for v in ("1", "2")}
        with running(folder / "state", workers=2) as mesh:
            mesh.cli("models", "push", "digits@1", str(files["1"]))
            mesh.cli("deploy", "digits@1")
            report = uvloop.run(measure(mesh, files, order.calls, order.rate))
    sys.stdout.write(report.summary() + "\n")
    for failure in report.failures[:10]:
        begun = failure.start - report.outcomes[0].start
        sys.stdout.write(f"  after {begun:.2f} s: {failure.status} {failure.detail}\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
