"""Readers of streams that don't read, on the worker's own socket: bounded, aborted, and nobody else waits for them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from google.api.httpbody_pb2 import HttpBody
from inferplane.generation.v1 import generation_pb2 as generation
from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from inferplane.openai.v1.openai_service_pb2_grpc import OpenAiServiceStub

from services.worker.domain.counters import Outcome
from services.worker.servicers.text_answer import ReaderBounds
from tests.integration.router.waiting import until
from tests.text_worker import TextWorker
from tests.unit.worker.llm.scripted_runner import continued, text_of

_SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))


@pytest.fixture(params=["auto", "grpcio"])
async def worker(request: pytest.FixtureRequest) -> AsyncIterator[TextWorker]:
    """Behind either front; a reader may let a second pass, or 64 KiB wait."""
    with TemporaryDirectory(prefix="ip") as folder:
        worker = await TextWorker.start(
            f"unix:{Path(folder)}/w.sock",
            front=request.param,
            reader=ReaderBounds(seconds=1.0, size=64 * 1024),
        )
        yield worker
        await worker.stop()


async def test_a_reader_that_stalls_holds_nobody_up(worker: TextWorker) -> None:
    """Its answers end with an error and free their blocks; another caller's text is written meanwhile."""
    address = f"unix:{worker.address.removeprefix('unix:')}"
    async with (
        grpc.aio.insecure_channel(address, options=_SMALL_WINDOW) as slow,
        grpc.aio.insecure_channel(address) as quick,
    ):
        # Each token says the likelihoods of twenty more: several megabytes altogether.
        much = {"model": "smol", "prompt": "hi", "max_tokens": 256, "n": 16, "logprobs": 20}
        body = HttpBody(data=json.dumps(much | {"stream": True}).encode())
        stalled: Any = OpenAiServiceStub(slow).CreateCompletion(body, timeout=60)
        assert (await stalled.read()).data
        few = generation.SamplingSettings(max_tokens=8, temperature=0.0)
        answer = await GenerationServiceStub(quick).Generate(
            service.GenerateRequest(
                model_name="smol", prompt=generation.Prompt(text="hi"), sampling=few
            ),
            timeout=20,
        )
        assert answer.choices[0].text == text_of(continued(b"hi", 8))
        await until(lambda: not worker.engine.load().used_blocks, seconds=100)
        last = b""
        while (message := await stalled.read()) is not grpc.aio.EOF:
            last = message.data
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert "was not read" in error["message"]
    assert worker.served.statistics.outcomes[Outcome.REJECTED].count == 1
    assert not worker.served.traffic.in_flight
