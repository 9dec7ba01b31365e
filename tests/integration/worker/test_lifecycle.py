"""Versions come, fail, drain and go while a real worker process serves others."""

import asyncio
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.integration.worker import registry_stand_in
from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, output, rounds_for
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, bad, good

V1, V2 = "models/affine/versions/1", "models/affine/versions/2"
ODD = "models/odd/versions/1"
X = np.ones((1, 4), np.float32)


async def check_answers(worker: WorkerProcess, factor: float) -> None:
    """The version that worked goes on working."""
    assert (output(await Client(worker.channel).infer("affine", x=X)) == factor * X).all()
    assert worker.is_alive


BAD = {
    "endless example": (artifact.of_model(bad.endless()), "after 10 s"),
    "hungry example": (artifact.of_model(bad.hungry()), "memory"),
    "corrupt": (artifact.of_bytes(bad.corrupt()), "not an ONNX model"),
    "pickle": (artifact.of_bytes(bad.pickled()), "not an ONNX model"),
    "empty file": (artifact.of_bytes(b""), ""),
    "external ..": (artifact.of_model(bad.external("../../etc/passwd")), "'../../etc/passwd'"),
    "external /": (artifact.of_model(bad.external("/etc/passwd")), "'/etc/passwd'"),
    "external of nobody": (artifact.of_model(bad.external("w.bin")), "'w.bin'"),
    "path with ..": (
        artifact.Artifact({"../model.onnx": b"x"}, (), ()),
        "leaves the version's folder",
    ),
    "other signature": (
        artifact.Artifact(
            {"model.onnx": good.affine(1.0)},
            artifact.of_model(good.add()).inputs,
            artifact.of_model(good.add()).outputs,
        ),
        "the model's inputs are ['x'], registered ['a', 'b']",
    ),
}


async def test_what_cannot_be_loaded_fails_with_its_reason_and_harms_nobody(home: Home) -> None:
    """Each bad artifact ends as FAILED with words that say why; the process and its good version stay."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    limits = {"load_timeout_seconds": "10", "load_memory_bytes": str(4 << 30)}
    async with running(home.folder, home.registry_address, **limits) as worker:
        await home.registry.until_state(V1, "READY")
        for number, (row, (files, words)) in enumerate(BAD.items()):
            version = f"models/bad/versions/{number}"
            await home.registry.put(version, files)
            reported = await home.registry.until_state(version, "FAILED")
            assert words in reported.reason, row
            await home.registry.remove(version)
            await check_answers(worker, 3.0)


async def test_external_data_of_the_version_itself_is_loaded(home: Home) -> None:
    """Weights in a file beside the graph are what external data is for."""
    weights = np.array([10, 20], np.float32).tobytes()
    files = artifact.of_model(bad.external("w.bin"), **{"w.bin": weights})
    await home.registry.put(ODD, files)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(ODD, "READY")
        answer = await Client(worker.channel).infer("odd", x=np.ones((1, 2), np.float32))
        assert output(answer).tolist() == [[11, 21]]


async def test_a_model_that_refuses_zeros_is_served(home: Home) -> None:
    """Whole numbers are divided; its example was of ones."""
    await home.registry.put(ODD, artifact.of_model(good.divided("Div")))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(ODD, "READY")
        a, b = np.array([7, 9], np.int64), np.array([2, 3], np.int64)
        assert output(await Client(worker.channel).infer("odd", a=a, b=b)).tolist() == [3, 3]


async def test_a_failed_version_is_tried_at_once_when_placed_anew(home: Home) -> None:
    """The back-off of a minute is cut short; with the right bytes it becomes READY."""
    await home.registry.put(ODD, artifact.of_model(good.affine(2.0)))
    right = home.registry.files[ODD, "model.onnx"]
    home.registry.files[ODD, "model.onnx"] = right[:-1] + b"\0"
    async with running(home.folder, home.registry_address) as worker:
        failed = await home.registry.until_state(ODD, "FAILED")
        assert "SHA-256" in failed.reason
        home.registry.files[ODD, "model.onnx"] = right
        await home.registry.place(ODD)
        await home.registry.until_state(ODD, "READY")
        assert worker.is_alive


async def test_a_broken_download_goes_on_where_it_ended(home: Home) -> None:
    """The second stream begins at the first byte that is missing."""
    home.registry.chunk, home.registry.break_after = 64, 128
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        assert [offset for _, _, offset in home.registry.downloads] == [0, 128]
        await check_answers(worker, 3.0)


async def test_cached_files_are_used_again_unless_they_are_corrupt(home: Home) -> None:
    """A second worker fetches nothing; after a byte has changed on disk a third one fetches anew."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address):
        await home.registry.until_state(V1, "READY")
    home.registry.workers.clear()
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        assert len(home.registry.downloads) == 1
        await check_answers(worker, 3.0)
    home.registry.workers.clear()
    (cached,) = (home.folder / "state" / "cache").glob("*/model.onnx")
    damage(cached)
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        assert len(home.registry.downloads) == 2
        await check_answers(worker, 3.0)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def test_a_removed_placement_drains_then_unloads(home: Home) -> None:
    """DRAINING is reported first, calls in flight are answered, then the version is unknown here."""
    slow = "models/slow/versions/1"
    await home.registry.put(slow, artifact.of_model(good.counting()))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(slow, "READY")
        client = Client(worker.channel)
        x, rounds = np.ones(1, np.float32), await rounds_for(client, "slow", 3)
        call = asyncio.create_task(client.infer("slow", x=x, rounds=rounds))
        await home.registry.until(
            lambda: any(w.in_flight == 1 for w in home.registry.workers.values())
        )
        await home.registry.remove(slow)
        await home.registry.until_state(slow, "DRAINING")
        assert not call.done()
        assert (output(await call) == x).all()
        await home.registry.until(
            lambda: all(not w.versions for w in home.registry.workers.values())
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.infer("slow", x=x, rounds=rounds)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_registry_may_go_and_come_back(folder: Path) -> None:
    """Calls are answered while it is away; what changed is taken up, also from a registry that lost its log."""
    registry, address = Registry(), f"unix:{folder}/r.sock"
    await registry.put(V1, artifact.of_model(good.affine(1.0)))
    async with running(folder, address) as worker:
        async with registry_stand_in.serving(registry, address):
            await registry.until_state(V1, "READY")
        await check_answers(worker, 1.0)
        await registry.put(V2, artifact.of_model(good.affine(2.0)))
        async with registry_stand_in.serving(registry, address):
            await registry.until_state(V2, "READY")
        await check_answers(worker, 2.0)
        other = Registry()
        await other.put(V2, artifact.of_model(good.affine(2.0)))
        async with registry_stand_in.serving(other, address):
            await other.until(lambda: any(len(w.versions) == 1 for w in other.workers.values()))
            await check_answers(worker, 2.0)


async def test_sigterm_loses_no_call(home: Home) -> None:
    """Draining is told at once, calls that still come are answered, the end is clean."""
    await home.registry.put(V1, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(V1, "READY")
        client, answered = Client(worker.channel), 0
        draining = asyncio.create_task(
            home.registry.until(lambda: any(w.draining for w in home.registry.workers.values()))
        )

        async def call_until_the_route_has_moved() -> None:
            nonlocal answered
            while not draining.done() or answered < 200:
                await client.infer("affine", x=X)
                answered += 1

        callers = [asyncio.create_task(call_until_the_route_has_moved()) for _ in range(8)]
        await home.registry.until(
            lambda: any(
                v.counters.succeeded for w in home.registry.workers.values() for v in w.versions
            )
        )
        worker.ask_to_stop()
        await asyncio.gather(draining, *callers)
        assert await worker.ended() == 0
    last = home.registry.reports[-1]
    assert last.draining
    assert not home.registry.workers


async def test_a_model_that_never_answers_does_not_keep_the_worker(home: Home) -> None:
    """SIGTERM ends the process within its grace time, though a thread computes on."""
    slow = "models/slow/versions/1"
    await home.registry.put(slow, artifact.of_model(good.counting()))
    async with running(home.folder, home.registry_address, drain_seconds="1") as worker:
        await home.registry.until_state(slow, "READY")
        x, rounds = np.ones(1, np.float32), np.array([1 << 40], np.int64)
        call = asyncio.create_task(Client(worker.channel).infer("slow", x=x, rounds=rounds))
        await home.registry.until(
            lambda: any(w.in_flight == 1 for w in home.registry.workers.values())
        )
        worker.ask_to_stop()
        assert await worker.ended() == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await call
