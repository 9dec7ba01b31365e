"""The worker's two fronts side by side: calls per second and CPU per call, over a unix socket and through Envoy.

Run: .venv/bin/python -m benchmarks.front [--seconds 2] [--skip-edge]

Two worker processes serve the same model, one by the fast front, one by grpcio. A generator process of its own, an
HTTP/2 client that keeps so many calls in flight on one connection, asks them in turns. Its requests have one row; each
answer is compared byte by byte with that of bare ONNX Runtime, before the timing and in it. Ends with 1 if one differs.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ngh2
import numpy as np
import onnxruntime
import psutil
from inference import open_inference_pb2 as oip

from services.cli.demo import digits
from services.router.domain.topology import Endpoint, Target
from services.rpc import address as addresses
from services.rpc.names import EndpointName, VersionName
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.worker import registry_stand_in
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import running
from tests.models import artifact

IN_FLIGHT = (1, 8, 32, 128)
FRONTS = {"front": "auto", "grpcio": "grpcio"}
VERSIONS = {"front": "1", "grpcio": "2"}
_SAMPLES = 64
_CHECKED = 256  # calls that are compared before the timing
_WARM = 0.3  # seconds


# The generator


@dataclass(slots=True)
class Generator:
    """Calls on one connection, each answer compared with what it must be."""

    sock: socket.socket
    bodies: list[bytes]
    answers: list[bytes]
    connection: ngh2.Connection = field(default_factory=lambda: ngh2.Connection(ngh2.Role.CLIENT))
    waiting: dict[int, tuple[int, bytearray]] = field(default_factory=dict)
    sent: int = 0
    right: int = 0
    wrong: int = 0

    def begin(self) -> None:
        """One more call."""
        number = self.sent % len(self.bodies)
        self.sent += 1
        stream = self.connection.send_request(HEADERS)
        self.connection.send_data(stream, self.bodies[number], end_stream=True)
        self.waiting[stream] = (number, bytearray())

    def step(self) -> int:
        """Send, receive once; the number of calls that ended."""
        out = self.connection.data_to_send()
        if out:
            self.sock.sendall(out)
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the peer closed the connection")
        self.connection.receive_data(data)
        ended = 0
        for event in self.connection.events():
            if isinstance(event, ngh2.DataReceived):
                self.waiting[event.stream_id][1].extend(event.data)
            elif isinstance(event, ngh2.StreamClosed):
                number, answer = self.waiting.pop(event.stream_id)
                if answer == self.answers[number]:
                    self.right += 1
                else:
                    self.wrong += 1
                ended += 1
        return ended

    def keep(self, in_flight: int, *, calls: int = 1 << 60, seconds: float = 1e9) -> float:
        """So many in flight until so many have been sent or so long has passed; the seconds that took."""
        begin = time.perf_counter()
        end, first = begin + seconds, self.sent
        while True:
            is_open = time.perf_counter() < end
            while is_open and len(self.waiting) < in_flight and self.sent - first < calls:
                self.begin()
            if not self.waiting:
                return time.perf_counter() - begin
            self.step()


HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"grpc-timeout", b"10S"),
)


def generate(order: dict[str, object]) -> dict[str, float]:
    """What the generator process does: check, warm up, time."""
    parsed = addresses.parse(str(order["address"]))
    if parsed.path is not None:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(parsed.path)
    else:
        sock = socket.create_connection((parsed.host, parsed.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bodies, answers = samples(Path(str(order["model"])), str(order["name"]), str(order["version"]))
    generator = Generator(sock, bodies, answers)
    generator.connection.initiate_connection({})
    in_flight = int(str(order["in_flight"]))
    generator.keep(in_flight, calls=_CHECKED)
    generator.keep(in_flight, seconds=_WARM)
    if generator.wrong:
        raise AssertionError(f"{generator.wrong} of {generator.sent} answers are wrong")
    pids = [psutil.Process(pid) for pid in json.loads(str(order["pids"]))]
    before, right = [cpu(process) for process in pids], generator.right
    seconds = generator.keep(in_flight, seconds=float(str(order["seconds"])))
    calls = generator.right - right
    spent = [cpu(process) - was for process, was in zip(pids, before, strict=True)]
    return {
        "calls": calls / seconds,
        "worker": 1e6 * spent[0] / max(calls, 1),
        "envoy": 1e6 * spent[1] / max(calls, 1) if len(spent) > 1 else 0.0,
        "wrong": generator.wrong,
    }


def samples(model: Path, name: str, version: str) -> tuple[list[bytes], list[bytes]]:
    """Requests and the very bytes of their answers."""
    images = digits.load().held_out_images[:_SAMPLES]
    labels = onnxruntime.InferenceSession(model).run(["label"], {"image": images})[0]
    bodies: list[bytes] = []
    answers: list[bytes] = []
    for image, label in zip(images, labels, strict=True):
        request = oip.ModelInferRequest(model_name=name)
        request.inputs.add(name="image", datatype="FP32", shape=[1, image.size])
        request.outputs.add(name="label")
        request.raw_input_contents.append(image.astype(np.float32).tobytes())
        answer = oip.ModelInferResponse(model_name=name, model_version=version)
        answer.outputs.add(name="label", datatype="INT64", shape=[1])
        answer.raw_output_contents.append(np.array([label], np.int64).tobytes())
        for message, into in ((request, bodies), (answer, answers)):
            data = message.SerializeToString()
            into.append(b"\0" + len(data).to_bytes(4, "big") + data)
    return bodies, answers


def cpu(process: psutil.Process) -> float:
    """Seconds of CPU that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


# The measurement


@dataclass(frozen=True, slots=True)
class Server:
    """What is measured: a worker, or an edge before it."""

    front: str
    address: str
    name: str  # of the model or endpoint
    pids: list[int]  # worker, Envoy


async def measure(server: Server, model: Path, in_flight: int, seconds: float) -> dict[str, float]:
    """One row, in a process of its own."""
    order = {
        "address": server.address,
        "model": str(model),
        "name": server.name,
        "version": VERSIONS[server.front],
        "in_flight": in_flight,
        "seconds": seconds,
        "pids": json.dumps(server.pids),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.front", "--generate", json.dumps(order)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the generator ended with {process.returncode}, having said {out!r}")
    row: dict[str, float] = json.loads(out)
    return row


@asynccontextmanager
async def workers(folder: Path, model: Path) -> AsyncIterator[dict[str, Server]]:
    """One worker for each front, READY."""
    registry, address = Registry(), f"unix:{folder}/registry.sock"
    graph = await asyncio.to_thread(model.read_bytes)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry_stand_in.serving(registry, address))
        found = {}
        for front, setting in FRONTS.items():
            version = f"models/digits/versions/{VERSIONS[front]}"
            await registry.put(version, artifact.of_model(graph), pool=front)
            variables = {"front": setting, "pool": front, "max_batch_size": "128"}
            worker = await stack.enter_async_context(running(folder, address, **variables))
            await registry.until_state(version, "READY")
            found[front] = Server(front, worker.address, "digits", [worker.process.pid])
        yield found


@asynccontextmanager
async def edge(folder: Path, direct: dict[str, Server]) -> AsyncIterator[dict[str, Server]]:
    """A router and an Envoy before both workers, each with an endpoint of its own."""
    started = await EdgeUnderTest.start(folder)
    try:
        names = {front: VersionName("digits", VERSIONS[front]) for front in direct}
        started.set_workers({server.address: {names[f]} for f, server in direct.items()})
        for front, version in names.items():
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


async def compare(title: str, servers: dict[str, Server], model: Path, seconds: float) -> float:
    """A table: both fronts in turns; the number of wrong answers."""
    say(f"\n{title}\n")
    say(
        "| in flight | front calls/s | grpcio calls/s | ratio |"
        " front CPU µs | grpcio CPU µs | ratio | Envoy CPU µs, front / grpcio |\n"
    )
    say("|---|---|---|---|---|---|---|---|\n")
    wrong = 0.0
    for in_flight in IN_FLIGHT:
        row = {f: await measure(s, model, in_flight, seconds) for f, s in servers.items()}
        a, b = row["front"], row["grpcio"]
        wrong += a["wrong"] + b["wrong"]
        say(
            f"| {in_flight} | {a['calls']:,.0f} | {b['calls']:,.0f} | {a['calls'] / b['calls']:.1f}"
            f" | {a['worker']:.1f} | {b['worker']:.1f} | {b['worker'] / max(a['worker'], 0.1):.1f}"
            f" | {a['envoy']:.1f} / {b['envoy']:.1f} |\n"
        )
    return wrong


async def benchmark(seconds: float, *, with_edge: bool) -> int:
    """Both tables."""
    with tempfile.TemporaryDirectory(prefix="ip-bench-") as name:
        folder = Path(name)
        model = digits.export("2", folder)
        async with workers(folder, model) as direct:
            wrong = await compare("Unix socket", direct, model, seconds)
            if with_edge:
                async with edge(folder, direct) as through:
                    wrong += await compare("Through Envoy (TCP)", through, model, seconds)
    return 1 if wrong else 0


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--skip-edge", action="store_true")
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    order = parser.parse_args()
    if order.generate:
        faulthandler.enable()  # the codec is C
        say(json.dumps(generate(json.loads(order.generate))))
        return 0
    # Not uvloop: it forks with gRPC's threads about, and twice a child crashed before it said anything.
    return asyncio.run(benchmark(order.seconds, with_edge=not order.skip_edge))


if __name__ == "__main__":
    sys.exit(main())
