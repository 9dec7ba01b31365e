"""A worker process counts what it accepts, once, however it ends; metering is a stand-in that speaks the real gRPC."""

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import orjson
import pytest
from google.api.httpbody_pb2 import HttpBody
from inferplane.generation.v1 import generation_pb2
from inferplane.generation.v1 import generation_service_pb2 as texts
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from inferplane.openai.v1 import openai_service_pb2_grpc
from inferplane.registry.v1 import model_pb2

from tests.integration.worker import metering_stand_in
from tests.integration.worker.conftest import Home
from tests.integration.worker.metering_stand_in import Metering, Row
from tests.integration.worker.oip_client import Client, details, request
from tests.integration.worker.worker_process import WorkerProcess, running
from tests.models import artifact, good
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

AFFINE, SLOW, TINY = "models/affine/versions/1", "models/slow/versions/1", "models/tiny/versions/1"
X = np.ones((3, 4), np.float32)
ONE = np.ones(1, np.float32)
ENDLESS = np.array([1 << 40], np.int64)


class Billed:
    """A worker's home with metering in it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.metering = Metering()
        self.address = f"unix:{home.folder}/metering.sock"

    def worker(self, **variables: str) -> Any:
        """One that counts."""
        return running(
            self.home.folder,
            self.home.registry_address,
            metering_address=self.address,
            **variables,
        )

    @property
    def outboxes(self) -> list[Path]:
        return sorted((self.home.folder / "state" / "usage").iterdir())


@pytest.fixture
async def billed(home: Home) -> AsyncIterator[Billed]:
    made = Billed(home)
    async with metering_stand_in.serving(made.metering, made.address):
        yield made


def headers(number: int, **others: str) -> list[tuple[str, str]]:
    said = {"x-request-id": str(uuid.UUID(int=number)), "x-inferplane-project": "alice"}
    said |= {"x-inferplane-key": "k1", "x-envoy-attempt-count": "1"}
    return list((said | {k.replace("_", "-"): v for k, v in others.items()}).items())


def number(row: Row) -> int:
    return uuid.UUID(bytes=row.request_id).int


@pytest.mark.usefixtures("both_fronts")
async def test_every_way_of_tensors_is_counted_once(billed: Billed) -> None:
    """Unknown and known forms, REST, messages of a stream; what is refused at the door is not."""
    await billed.home.registry.put(AFFINE, artifact.of_model(good.affine(2.0)))
    async with billed.worker() as worker:
        await billed.home.registry.until_state(AFFINE, "READY")
        client = Client(worker.channel)
        for n in range(1, 6):  # from the third on its form is known
            await client.oip.ModelInfer(request("affine", x=X), metadata=headers(n))
        shadow = headers(6, x_inferplane_shadow="1", x_inferplane_endpoint="affine")
        await client.oip.ModelInfer(request("affine", x=X), metadata=shadow)
        body = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]
        }
        await client.post("affine", orjson.dumps(body), dict(headers(7)))
        stream = client.oip.ModelStreamInfer(
            iter([request("affine", x=X), request("affine", y=X), request("affine", x=X)]),
            metadata=headers(8),
        )
        assert len([answer async for answer in stream]) == 3
        with pytest.raises(grpc.aio.AioRpcError):
            await client.oip.ModelInfer(request("affine", y=X), metadata=headers(9))
        rows = await billed.metering.until(9)
        worker.ask_to_stop()
        assert await worker.ended() == 0
    rows = sorted(billed.metering.rows, key=lambda row: (number(row), row.part))
    assert [number(row) for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert [row.part for row in rows] == [0] * 8 + [2]
    assert {row.ended for row in rows} == {"OK"}
    assert [row.rows for row in rows] == [3, 3, 3, 3, 3, 3, 1, 3, 3]
    assert all(row.compute_ns > 0 and row.queue_ns >= 0 for row in rows)
    assert all(row.duration_ns >= row.compute_ns for row in rows)
    assert all(row.request_bytes > 0 and row.response_bytes > 0 for row in rows)
    first, shadowed = rows[0].subject, rows[5].subject
    assert (first.project, first.key, first.version, first.kind) == ("alice", "k1", AFFINE, 1)
    assert len(first.digest) == 64
    assert (shadowed.kind, shadowed.endpoint) == (2, "affine")
    assert billed.metering.twice == 0
    assert billed.outboxes == []


async def test_a_worker_that_is_killed_loses_nothing(billed: Billed) -> None:
    """Answers were given and no row has left; one runs: the next worker tells of all of them, once."""
    billed.metering.is_away = True
    await billed.home.registry.put(AFFINE, artifact.of_model(good.affine(2.0)))
    await billed.home.registry.put(SLOW, artifact.of_model(good.counting()))
    async with billed.worker() as worker:
        for version in (AFFINE, SLOW):
            await billed.home.registry.until_state(version, "READY")
        client = Client(worker.channel)
        stuck = client.oip.ModelInfer(request("slow", x=ONE, rounds=ENDLESS), metadata=headers(100))
        for n in range(1, 21):
            await client.oip.ModelInfer(request("affine", x=X), metadata=headers(n))
        worker.process.send_signal(signal.SIGKILL)
        await worker.ended()
        with pytest.raises(grpc.aio.AioRpcError):
            await stuck
    assert billed.metering.rows == []
    billed.metering.is_away = False
    async with billed.worker() as worker:
        rows = await billed.metering.until(21)
        worker.ask_to_stop()
        assert await worker.ended() == 0
    ended = {number(row): row.ended for row in rows}
    assert ended == dict.fromkeys(range(1, 21), "OK") | {100: "ABORTED"}
    assert len(rows) == 21
    assert billed.outboxes == []


async def test_metering_gets_each_row_once_whatever_it_does(billed: Billed) -> None:
    """Away, losing answers, refusing a row, losing all it had: rows come once, in the order in which they ended."""
    metering = billed.metering
    metering.poison = "mallory"
    await billed.home.registry.put(AFFINE, artifact.of_model(good.affine(2.0)))
    async with billed.worker() as worker:
        await billed.home.registry.until_state(AFFINE, "READY")
        client = Client(worker.channel)
        for n in range(1, 41):
            metering.is_away = 10 < n <= 20
            metering.loses_answers = 20 < n <= 30
            said = headers(n, x_inferplane_project="mallory" if n == 15 else "alice")
            await client.oip.ModelInfer(request("affine", x=X), metadata=said)
        await metering.until(39)
        assert len(metering.wanted) == 2  # after the refused row numbers begin anew
        metering.wanted.clear()  # rows are wanted that are gone from the outbox
        await client.oip.ModelInfer(request("affine", x=X), metadata=headers(41))
        rows = [number(row) for row in await metering.until(40)]
        worker.ask_to_stop()
        assert await worker.ended() == 0
    assert rows == [n for n in range(1, 42) if n != 15]
    assert list(metering.wanted.values()) == [1]
    assert {path.suffix for path in billed.outboxes} == {".json", ".rows"}


async def _refusal(call: Any) -> grpc.aio.AioRpcError | None:
    """Why a call was not answered; None: it was."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def test_a_full_outbox_refuses_and_opens_again(billed: Billed) -> None:
    """UNAVAILABLE with the reason; what was answered before is counted."""
    await billed.home.registry.put(AFFINE, artifact.of_model(good.affine(2.0)))
    billed.metering.is_away = True
    async with billed.worker(usage_outbox_bytes=str(64 * 1024)) as worker:
        await billed.home.registry.until_state(AFFINE, "READY")
        client, answered = Client(worker.channel), 0

        def ask(n: int) -> Any:
            return client.oip.ModelInfer(request("affine", x=X), metadata=headers(n))

        while (refused := await _refusal(ask(answered + 1))) is None:
            answered += 1
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert details(refused)["ErrorInfo"].reason == "USAGE_OUTBOX_FULL"
        billed.metering.is_away = False
        await billed.metering.until(answered)
        async with asyncio.timeout(60):
            while (refused := await _refusal(ask(10**6))) is not None:
                assert refused.code() is grpc.StatusCode.UNAVAILABLE
                await asyncio.sleep(0.05)
        rows = await billed.metering.until(answered + 1)
    assert sorted(number(row) for row in rows) == [*range(1, answered + 1), 10**6]


async def test_how_calls_end_is_told(billed: Billed) -> None:
    """By the caller, by its deadline: counted as such."""
    await billed.home.registry.put(SLOW, artifact.of_model(good.counting()))
    async with billed.worker() as worker:
        await billed.home.registry.until_state(SLOW, "READY")
        client = Client(worker.channel)
        slow = request("slow", x=ONE, rounds=ENDLESS)
        late = client.oip.ModelInfer(slow, metadata=headers(1), timeout=5)
        gone = client.oip.ModelInfer(slow, metadata=headers(2))
        await _until_open(worker, billed, 1)
        await _until_open(worker, billed, 2)
        gone.cancel()
        assert await _refusal(late) is not None
        rows = await billed.metering.until(2)
    ended = {number(row): row.ended for row in rows}
    assert ended[2] == "CANCELLED"
    assert ended[1] in ("DEADLINE", "CANCELLED")  # whose clock was first


async def _until_open(worker: WorkerProcess, billed: Billed, count: int) -> None:
    """Wait until the worker has admitted so many: their ids are in its table."""
    (outbox,) = billed.outboxes
    wanted = uuid.UUID(int=count).bytes
    async with asyncio.timeout(60):
        while wanted not in (outbox / "open.table").read_bytes():
            assert worker.is_alive
            await asyncio.sleep(0.02)


def _language_model(folder: Path) -> artifact.Artifact:
    """A tiny one, of random weights."""
    data = write_tiny(folder / "tiny.gguf", Tiny(context=1024)).read_bytes()
    return artifact.Artifact({"model.gguf": data}, (), (), model_pb2.FORMAT_GGUF)


def _ask(tokens: int, n: int = 1) -> texts.GenerateStreamRequest:
    return texts.GenerateStreamRequest(
        model_name="tiny",
        prompt=generation_pb2.Prompt(text="hello world"),
        sampling=generation_pb2.SamplingSettings(
            max_tokens=tokens, temperature=0.0, ignore_eos=True, n=n
        ),
    )


async def test_texts_are_counted_by_what_was_delivered(billed: Billed, tmp_path: Path) -> None:
    """Whole, streamed, of several, as JSON; one that the caller left has the tokens that it got."""
    await billed.home.registry.put(TINY, _language_model(tmp_path))
    async with billed.worker() as worker:
        await billed.home.registry.until_state(TINY, "READY", 120)
        stub = GenerationServiceStub(worker.channel)
        asked = texts.GenerateRequest.FromString(_ask(7).SerializeToString())
        whole = await stub.Generate(asked, metadata=headers(1))
        streamed = [one async for one in stub.GenerateStream(_ask(9, n=2), metadata=headers(2))]
        body = {"model": "tiny", "prompt": ["a", "b c"], "max_tokens": 4, "ignore_eos": True}
        openai = openai_service_pb2_grpc.OpenAiServiceStub(worker.channel)
        call = openai.CreateCompletion(HttpBody(data=orjson.dumps(body)), metadata=headers(3))
        (answer,) = [one async for one in call]
        left = stub.GenerateStream(_ask(900), metadata=headers(4))
        got = 0
        async for one in left:
            got += sum(len(piece.token_ids) for piece in one.pieces)
            if got >= 3:
                break
        left.cancel()
        rows = {number(row): row for row in await billed.metering.until(4)}
    assert {n: row.ended for n, row in rows.items()} == {1: "OK", 2: "OK", 3: "OK", 4: "CANCELLED"}
    usage = orjson.loads(answer.data)["usage"]
    assert [rows[n].output_tokens for n in (1, 2, 3)] == [7, 18, 8]
    assert whole.usage.completion_tokens == 7
    assert streamed[-1].usage.completion_tokens == 18
    assert usage["completion_tokens"] == 8
    assert [rows[n].input_tokens for n in (1, 2, 3)] == [
        whole.usage.prompt_tokens,
        streamed[-1].usage.prompt_tokens,
        usage["prompt_tokens"],
    ]
    assert got <= rows[4].output_tokens < 900
    assert rows[2].cached_tokens == streamed[-1].usage.cached_prompt_tokens
    for row in rows.values():
        assert row.compute_ns > 0
        assert row.telemetry is not None
        assert row.telemetry.input_characters > 0
        assert row.response_bytes > 0


async def _read(call: Any, worker: WorkerProcess, chunks: int) -> int:
    """Tokens that came, when the worker is killed as so many chunks have come."""
    received = 0
    async for one in call:
        received += sum(len(piece.token_ids) for piece in one.pieces)
        chunks -= 1
        if not chunks:
            worker.process.send_signal(signal.SIGKILL)
            await worker.ended()
            return received
    raise AssertionError("the stream ended before")


async def test_a_stream_that_dies_is_counted_up_to_its_last_chunk(
    billed: Billed, tmp_path: Path
) -> None:
    """Killed after the first chunk, then after some: what came is counted, and no more than was written."""
    await billed.home.registry.put(TINY, _language_model(tmp_path))
    received: dict[int, int] = {}
    for n, chunks in ((1, 1), (2, 25)):
        async with billed.worker() as worker:
            await billed.home.registry.until_state(TINY, "READY", 120)
            stub = GenerationServiceStub(worker.channel)
            call = stub.GenerateStream(_ask(900), metadata=headers(n))
            received[n] = await _read(call, worker, chunks)
            call.cancel()
        billed.home.registry.workers.clear()  # what the dead one reported
    async with billed.worker():
        rows = {number(row): row for row in await billed.metering.until(2)}
    assert {row.ended for row in rows.values()} == {"ABORTED"}
    for n, tokens in received.items():
        assert tokens <= rows[n].output_tokens < 900
