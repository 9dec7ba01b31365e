"""The front of a real worker process: big messages, cancels, drains, health, and who may connect."""

import asyncio
import random
import stat
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.rpc import channel
from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import TRIALS, Client, output, request, rounds_for
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, good

VERSION = "models/m/versions/1"
SLOW = "models/slow/versions/1"
SMALL = "models/small/versions/1"
X = np.ones((1, 4), np.float32)


@pytest.fixture(autouse=True)
def _by_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERPLANE_FRONT", "auto")


def is_front(worker: WorkerProcess) -> bool:
    return '"front": "ngh2"' in worker.log.read_text()


async def test_the_socket_is_this_users_alone(home: Home) -> None:
    """Mode 0600; what speaks no HTTP/2 is put out, and the rest goes on."""
    async with running(home.folder, home.registry_address) as worker:
        assert is_front(worker)
        path = worker.address.removeprefix("unix:")
        assert stat.S_IMODE((await asyncio.to_thread(Path(path).stat)).st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 10)
        async with asyncio.timeout(100):
            await reader.read()
        writer.close()
        health = health_pb2_grpc.HealthStub(worker.channel)
        async with asyncio.timeout(100):
            async for told in health.Watch(health_pb2.HealthCheckRequest()):
                if told.status == health_pb2.HealthCheckResponse.SERVING:
                    break
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(service="nobody"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_can_be_watched(home: Home) -> None:
    """A stream of changes, ended by the watcher, or by the worker's end."""
    await home.registry.put(VERSION, artifact.of_model(good.affine(1.0)))
    async with running(home.folder, home.registry_address) as worker:
        stub = health_pb2_grpc.HealthStub(worker.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=VERSION))
        states = []
        async with asyncio.timeout(100):
            async for response in watch:
                states.append(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
                if states[-1] == "SERVING":
                    await home.registry.remove(VERSION)
                if states[-1] == "NOT_SERVING":
                    break
        assert states[-2:] == ["SERVING", "NOT_SERVING"]
        watch.cancel()
        last = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await last.read()).status == health_pb2.HealthCheckResponse.SERVING
        worker.ask_to_stop()
        assert (await last.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await worker.ended() == 0


async def test_sixty_mib_both_ways(home: Home) -> None:
    """Bit for bit, two at once, beside small calls that are answered too."""
    size = 60 << 18
    await home.registry.put(VERSION, artifact.of_model(good.identity("FP32", (size,))))
    await home.registry.put(SMALL, artifact.of_model(good.affine(2.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        await home.registry.until_state(SMALL, "READY")
        client = Client(worker.channel)
        big = np.random.default_rng(1).random(size, dtype=np.float32)
        large = [asyncio.create_task(client.infer("m", x=x)) for x in (big, -big)]
        for _ in range(10):
            assert (output(await client.infer("small", x=X)) == 2 * X).all()
        for x, task in zip((big, -big), large, strict=True):
            assert (await task).raw_output_contents[0] == x.tobytes()
        assert worker.is_alive


async def test_a_thousand_random_cancels(home: Home) -> None:
    """Each call is counted once, nobody waits any more, those that stayed have their answers."""
    await home.registry.put(VERSION, artifact.of_model(good.affine(2.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        client, numbers = Client(worker.channel), random.Random(7)
        calls = []
        for _ in range(2000):
            calls.append(client.oip.ModelInfer(request("m", x=X)))
            if numbers.random() < 0.3:
                await asyncio.sleep(0)
            if numbers.random() < 0.5:
                numbers.choice(calls[-20:]).cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        right = [a for a in ended if not isinstance(a, BaseException)]
        assert all((output(a) == 2 * X).all() for a in right)
        assert len(right) < 2000
        await client.infer("m", x=X)
        # A cancelled call may never have left the client, or be answered before the cancel came.
        await home.registry.until(
            lambda: any(
                w.in_flight == 0
                and all(
                    len(right) < v.counters.succeeded
                    and v.counters.succeeded + v.counters.cancelled <= 2001
                    and not (v.counters.failed or v.counters.rejected)
                    for v in w.versions
                )
                for w in home.registry.workers.values()
            )
        )


async def test_three_thousand_cancels_on_one_connection_harm_no_other_call(home: Home) -> None:
    """The call that ran all the while is answered."""
    await home.registry.put(SLOW, artifact.of_model(good.counting()))
    limits = {"max_queue_rows": "8192", "concurrent_runs": "1", "max_batch_size": "1"}
    limits["max_queue_seconds"] = "0"  # calls wait as long as they like
    async with running(home.folder, home.registry_address, **limits) as worker:
        await home.registry.until_state(SLOW, "READY")
        client = Client(worker.channel)
        x, few = np.ones(1, np.float32), np.array([1], np.int64)
        rounds = await rounds_for(client, "slow", 8)
        long = client.oip.ModelInfer(request("slow", x=x, rounds=rounds))
        await home.registry.until(
            lambda: any(w.in_flight == 1 for w in home.registry.workers.values())
        )
        for _ in range(30):
            batch = [client.oip.ModelInfer(request("slow", x=x, rounds=few)) for _ in range(100)]
            await asyncio.wait([asyncio.create_task(_sent(call)) for call in batch])
            for call in batch:
                call.cancel()
        assert (output(await long) == x).all()
        await client.infer("slow", x=x, rounds=few)
        # Where the machine is slow, calls were begun after the long one had ended, and some of those are answered.
        await home.registry.until(
            lambda: any(
                v.counters.succeeded >= TRIALS + 2 and v.counters.cancelled > 300
                for w in home.registry.workers.values()
                for v in w.versions
            )
        )
        assert worker.is_alive


async def _sent(call: grpc.aio.UnaryUnaryCall) -> None:  # type: ignore[type-arg] # not generic when run
    """Let the client put it on the wire."""
    try:
        async with asyncio.timeout(0.05):
            await call.initial_metadata()
    except TimeoutError:
        return


async def test_drain_under_load_over_several_connections(home: Home) -> None:
    """Calls that come during the drain are answered; the end is clean and no call is lost."""
    await home.registry.put(VERSION, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        options = [*channel.options(), ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(worker.address, options=options) for _ in range(4)]
        draining = asyncio.create_task(
            home.registry.until(lambda: any(w.draining for w in home.registry.workers.values()))
        )
        answered = 0

        async def call_until_the_route_has_moved(client: Client) -> None:
            nonlocal answered
            while not draining.done() or answered < 500:
                assert (output(await client.infer("m", x=X)) == 3 * X).all()
                answered += 1

        callers = [
            asyncio.create_task(call_until_the_route_has_moved(Client(each)))
            for each in channels
            for _ in range(4)
        ]
        await home.registry.until(
            lambda: any(
                v.counters.succeeded for w in home.registry.workers.values() for v in w.versions
            )
        )
        worker.ask_to_stop()
        await asyncio.gather(draining, *callers)
        assert await worker.ended() == 0
        for each in channels:
            await each.close()
        assert "calls in flight" not in worker.log.read_text()
