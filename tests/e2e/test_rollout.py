"""Changes under load: each lands at once and not one call fails.

The full-size run (1,000 calls a second, 100,000 calls) is `python -m benchmarks.rollout`; here each change gets a few
thousand calls, every one of them checked against what the version that answered says on bare ONNX Runtime.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc as oip_grpc

from benchmarks.load import Report, run
from services.cli.demo import digits
from tests.e2e.mesh import Mesh, eventually
from tests.e2e.oip_calls import digit_samples, raw_request
from tests.models import good

ROUNDS = 15_000  # of a loop that adds nothing: some ten milliseconds; a hundred such calls may wait for one worker
RATE = 300.0  # calls a second: half of what these clients and workers manage on two cores
# A machine that manages less gets less: what is promised here is that no call fails, not how many fit.
MOST = 64  # calls in flight: few enough that no queue is too long for its limit, however slowly it is computed
DEADLINE = 30.0  # seconds for a call
PATIENCE = 100.0  # seconds for some hundreds of calls


@pytest.fixture(scope="module")
def expected(files: dict[str, Path]) -> dict[str, npt.NDArray[np.int64]]:
    """What each version of digits says of the held-out images."""
    images = digits.load().held_out_images
    return {
        version: onnxruntime.InferenceSession(files[f"digits@{version}"]).run(
            ["label"], {"image": images}
        )[0]
        for version in ("1", "2")
    }


class _Load:
    """A load in the background, and its report once it has ended."""

    def __init__(self) -> None:
        self.report = Report()

    def assert_all_right(self, *, at_least: int) -> None:
        """Every call ended in a right answer, and there were enough of them to mean something."""
        assert self.report.failures == []
        assert len(self.report.outcomes) >= at_least


@asynccontextmanager
async def _under_load(
    mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]], after: int = 300
) -> AsyncIterator[_Load]:
    """Calls flow before, during and for `after` more calls after the body."""
    load = _Load()
    stop = asyncio.Event()
    samples = digit_samples(mesh, expected)
    task = asyncio.create_task(
        run(
            mesh.address,
            samples,
            calls=100_000,
            rate=RATE,
            deadline=DEADLINE,
            most=MOST,
            stop=stop,
            into=load.report,
        )
    )
    await _answered(load.report, after)
    try:
        yield load
        await _answered(load.report, len(load.report.outcomes) + after)
    finally:
        stop.set()
        await task


async def _answered(report: Report, count: int) -> None:
    await _until(report, lambda: len(report.outcomes) >= count)


async def _until(report: Report, holds: Callable[[], bool]) -> None:
    """Wait until something holds of the outcomes."""
    async with asyncio.timeout(PATIENCE), report.grown:
        await report.grown.wait_for(holds)


async def _split_among(report: Report, *versions: str) -> None:
    """Wait until the last hundred calls were answered by these versions, and no other."""
    seen = len(report.outcomes)

    def holds() -> bool:
        late = report.outcomes[max(seen, len(report.outcomes) - 100) :]
        return len(late) == 100 and {o.version for o in late} == set(versions)

    await _until(report, holds)


def _workers(mesh: Mesh) -> list[dict[str, object]]:
    found: list[dict[str, object]] = mesh.json("status")["workers"]
    return found


async def _both_well(mesh: Mesh, *versions: str) -> None:
    """Wait until Envoy sends calls of these to both workers, after what the test before has done to one.

    Versions must have a share of some traffic: Envoy knows no others.
    """
    await asyncio.to_thread(
        eventually,
        lambda: all(mesh.well(f"models/{version}") == 2 for version in versions),
        seconds=150,
        what="both workers are well",
    )


async def _cli(mesh: Mesh, *arguments: str) -> None:
    await asyncio.to_thread(mesh.cli, *arguments)


async def test_split_is_kept(mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]]) -> None:
    """2,000 calls at 90/10 land within 3 points, every one right."""
    await _cli(mesh, "traffic", "set", "digits", "1=90", "2=10")
    report = await run(
        mesh.address,
        digit_samples(mesh, expected),
        calls=2000,
        rate=400,
        deadline=DEADLINE,
        most=MOST,
    )
    assert report.failures == []
    assert abs(report.versions["2"] / 2000 - 0.10) < 0.03


async def test_moving_traffic(mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]]) -> None:
    """Moved from one version to the other and back several times, no call fails and each move is complete."""
    await _cli(mesh, "traffic", "set", "digits", "1=100")
    async with _under_load(mesh, expected) as load:
        for split in ("2=100", "1=100", "2=100"):
            await _cli(mesh, "traffic", "set", "digits", split)
            await _split_among(load.report, split[0])
            seen = len(load.report.outcomes)
            await _answered(load.report, seen + 150)
            assert {o.version for o in load.report.outcomes[seen:]} == {split[0]}
    load.assert_all_right(at_least=1500)


async def test_adding_and_draining_a_worker(
    mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]]
) -> None:
    """A third worker joins and takes calls, then is asked to end: nothing fails, and it ends with 0."""
    async with _under_load(mesh, expected) as load:
        extra = mesh.start_cli("worker")
        try:
            await asyncio.to_thread(
                eventually,
                lambda: sum(w.get("pid") == extra.pid and _ready(w) for w in _workers(mesh)) == 1,
                seconds=150,
                what="the new worker is ready",
            )
            await asyncio.to_thread(
                eventually,
                lambda: any(w.get("pid") == extra.pid and _succeeded(w) for w in _workers(mesh)),
                seconds=150,
                what="the new worker has answered calls",
            )
            extra.send_signal(signal.SIGTERM)
            out, err = await asyncio.to_thread(extra.communicate, timeout=60)
            assert extra.returncode == 0, out + err
        finally:
            with contextlib.suppress(ProcessLookupError):
                extra.kill()
    load.assert_all_right(at_least=1200)


def _ready(worker: dict[str, object]) -> bool:
    return sum(v["state"] == "LOAD_STATE_READY" for v in _versions(worker)) >= 8


def _versions(worker: dict[str, object]) -> list[dict[str, object]]:
    versions = worker["versions"]
    assert isinstance(versions, list)
    return versions


def _succeeded(worker: dict[str, object]) -> int:
    counters = [v["counters"] for v in _versions(worker)]
    return sum(int(c["succeeded"]) for c in counters if isinstance(c, dict))


async def test_killing_a_worker(mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]]) -> None:
    """A worker killed under load costs no call and is started again."""
    await _both_well(mesh, "digits/versions/2")
    victim = mesh.processes("services.worker")[0]
    async with _under_load(mesh, expected) as load:
        victim.kill()
        await asyncio.to_thread(
            eventually,
            lambda: (
                sum(_ready(w) for w in _workers(mesh)) == 2
                and victim.pid not in [w.get("pid") for w in _workers(mesh)]
            ),
            seconds=150,
            what="two ready workers, the killed one forgotten",
        )
    load.assert_all_right(at_least=600)


async def test_freezing_a_worker(mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]]) -> None:
    """A worker that stops without a word under load costs no call: what it holds is answered by another one."""
    await _both_well(mesh, "digits/versions/2")
    victim = mesh.processes("services.worker")[0]
    async with _under_load(mesh, expected) as load:
        victim.suspend()
        try:
            await _answered(load.report, len(load.report.outcomes) + 3000)
        finally:
            victim.resume()
    load.assert_all_right(at_least=3600)
    assert load.report.longest < DEADLINE / 2


async def test_killing_a_worker_that_holds_many_calls(mesh: Mesh) -> None:
    """100 calls in flight on two workers, one is killed: all 100 are answered."""
    await _both_well(mesh, "slow/versions/1")
    victim = mesh.processes("services.worker")[0]
    seven = np.array([7], np.float32).tobytes()
    request = raw_request("slow", "FP32", [1], seven)
    request.inputs.add(name="rounds", datatype="INT64", shape=[1])
    request.raw_input_contents.append(np.array([ROUNDS], np.int64).tobytes())
    async with mesh.async_channel() as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)
        calls = [asyncio.ensure_future(_answer(stub, request)) for _ in range(100)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        victim.kill()
        assert [await call for call in calls] == [seven] * 100
    await asyncio.to_thread(
        eventually,
        lambda: sum(_ready(w) for w in _workers(mesh)) == 2,
        seconds=150,
        what="two ready workers again",
    )


async def _answer(stub: Any, request: oip.ModelInferRequest) -> bytes:
    answer = await stub.ModelInfer(request, timeout=60)
    return bytes(answer.raw_output_contents[0])


@pytest.mark.parametrize("service", ["services.router", "services.registry"])
async def test_killing_the_control_plane(
    service: str, mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]]
) -> None:
    """Router or registry killed under load: no call notices, and traffic can be moved again afterwards."""
    (victim,) = mesh.processes(service)
    async with _under_load(mesh, expected) as load:
        victim.kill()
        await asyncio.to_thread(
            eventually,
            lambda: (
                mesh.cli("traffic", "set", "digits", "1=50", "2=50", check=False).returncode == 0
            ),
            seconds=150,
            what=f"{service} answers again",
        )
        await _split_among(load.report, "1", "2")
    load.assert_all_right(at_least=700)


async def test_a_request_that_crashes_its_model(
    mesh: Mesh, expected: dict[str, npt.NDArray[np.int64]], tmp_path: Path
) -> None:
    """One worker dies of it, the caller is told, sending it again kills nobody, and no other call fails."""
    (tmp_path / "divided.onnx").write_bytes(good.divided("Div"))
    await _cli(mesh, "models", "push", "divided", str(tmp_path / "divided.onnx"))
    await _cli(mesh, "deploy", "divided@1")
    await asyncio.to_thread(
        eventually,
        lambda: sum(_ready(w) for w in _workers(mesh)) == 2,
        seconds=150,
        what="two ready workers",
    )
    await _both_well(mesh, "divided/versions/1", "digits/versions/2")
    before = {process.pid for process in mesh.processes("services.worker")}
    request = raw_request("divided", "INT64", [1], np.array([-(2**63)], np.int64).tobytes(), "a")
    request.inputs.add(name="b", datatype="INT64", shape=[1])
    request.raw_input_contents.append(np.array([-1], np.int64).tobytes())
    stop, samples = asyncio.Event(), digit_samples(mesh, expected)
    async with mesh.async_channel() as channel:
        stub = oip_grpc.GRPCInferenceServiceStub(channel)

        async def call_on(number: int) -> int:
            while not stop.is_set():
                sample = samples[number % len(samples)]
                assert sample.is_right(await stub.ModelInfer(sample.request, timeout=60))
                number += 1
            return number

        others = [asyncio.create_task(call_on(number)) for number in range(8)]
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.ModelInfer(request, timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
            assert "the model crashes on these inputs" in str(caught.value.details())
        stop.set()
        assert sum(await asyncio.gather(*others)) > sum(range(8)) + 8  # they have gone on
    assert len(before & {process.pid for process in mesh.processes("services.worker")}) == 1
