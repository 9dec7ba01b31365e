"""Calls for text at the worker's own socket, watched: what is known afterwards, what is kept, and what is not."""

import asyncio
import gc
import gzip
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import prometheus_client
import pytest
import structlog
from google.api.httpbody_pb2 import HttpBody
from inferplane.generation.v1 import generation_pb2 as generation
from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from inferplane.openai.v1.openai_service_pb2_grpc import OpenAiServiceStub

from services.rpc import channel
from services.worker.adapters.capture_files import CaptureFiles
from services.worker.adapters.text_metrics import TextMetrics
from services.worker.domain.capture_rule import CaptureRule
from services.worker.domain.redaction import RULES
from services.worker.domain.text_telemetry import TextTelemetry
from services.worker.drivers import text_desk
from services.worker.drivers.text_desk import DeskEvent, DeskParts, TextDesk
from services.worker.drivers.text_watch import WatchedTexts, WatchSettings
from services.worker.ports.scorer import Scores
from services.worker.ports.text_watch import TextRecord, WatchedCall
from tests.integration.router.waiting import until
from tests.text_worker import TextWorker
from tests.unit.worker.llm.scripted_runner import continued, text_of

CAPTURED = CaptureRule(endpoints=frozenset({"smol"}), projects=frozenset({"lab"}))
SECRET = "marzipan"  # in prompts, to be looked for
CALLERS = 1_024  # as many heads are remembered before they are forgotten together


class Short:
    """A scorer."""

    labels = ("short",)

    def score(self, texts: Sequence[str]) -> Sequence[Scores]:
        return [{"short": float(len(text) < 10)} for text in texts]


@dataclass
class Seen:
    """A watch, and what its records said at their end."""

    watch: WatchedTexts
    known: list[tuple[WatchedCall, TextTelemetry]] = field(default_factory=list)
    keep: bool = True

    def begin(self, call: WatchedCall) -> TextRecord:
        record = self.watch.begin(call)
        if self.keep:
            inner = record.end

            class Told:
                asked, wrote = record.asked, record.wrote

                def end(told) -> TextTelemetry:  # noqa: N805
                    known = inner()
                    self.known.append((call, known))
                    return known

            return Told()
        return record

    def scores(self, request_id: bytes) -> Mapping[str, float]:
        return self.watch.scores(request_id)


@dataclass
class Home:
    """A worker whose texts are watched."""

    worker: TextWorker
    seen: Seen
    desk: TextDesk
    folder: Path
    channel: grpc.aio.Channel

    def captured(self) -> Iterator[dict[str, Any]]:
        for path in (self.folder / "capture").glob("*"):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                yield json.loads(line)


@pytest.fixture(params=["auto", "grpcio"])
async def home(request: pytest.FixtureRequest) -> AsyncIterator[Home]:
    """Behind either front."""
    with TemporaryDirectory(prefix="ip") as name:
        folder = Path(name)
        captures = CaptureFiles(folder / "capture", 1 << 20)
        desk = TextDesk(DeskParts(scorer=Short(), captures=captures, redaction=RULES))
        settings = WatchSettings(secret=b"s" * 32, rules=[CAPTURED], scored=True)
        seen = Seen(WatchedTexts(settings, desk))
        worker = await TextWorker.start(f"unix:{folder}/w.sock", front=request.param, watch=seen)
        TextMetrics(desk, worker.metrics)
        running = asyncio.create_task(desk.run())
        async with channel.connect(worker.address) as connected:
            yield Home(worker, seen, desk, folder, connected)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await worker.stop()
        captures.close()


def headers(project: str, number: int = 1) -> tuple[tuple[str, str], ...]:
    """As the edge sets them."""
    return (
        ("x-inferplane-project", project),
        ("x-inferplane-key", f"{number:032x}"),
        ("x-inferplane-endpoint", "smol"),
        ("x-inferplane-version", "models/smol/versions/1"),
        ("x-request-id", str(uuid.UUID(int=number))),
    )


def asked(prompt: str, max_tokens: int = 4) -> service.GenerateRequest:
    sampling = generation.SamplingSettings(max_tokens=max_tokens, temperature=0.0)
    return service.GenerateRequest(
        model_name="smol", prompt=generation.Prompt(text=prompt), sampling=sampling
    )


async def see(what: Callable[[], bool]) -> None:
    """Soon."""
    await until(what, seconds=60)


async def test_what_is_known_of_a_call(home: Home) -> None:
    """1. Fingerprint and lengths at its end. 2. Scores under its id. 3. Its capture, redacted."""
    prompt = f"I am jane@{SECRET}.org"
    answer = await GenerationServiceStub(home.channel).Generate(
        asked(prompt), metadata=headers("lab")
    )
    assert answer.choices[0].text == text_of(continued(prompt.encode(), 4))
    ((call, known),) = home.seen.known
    assert call.caller.project == "lab"
    assert call.caller.key == f"{1:032x}"
    assert len(known.prompt_fingerprint) == 16
    assert (known.input_characters, known.output_characters) == (len(prompt), 4)
    await see(lambda: bool(list(home.captured())))
    assert home.seen.scores(uuid.UUID(int=1).bytes) == {"input_short": 0.0, "output_short": 1.0}
    (kept,) = home.captured()
    assert kept["prompts"] == ["I am [email]"]
    assert kept["answers"] == [answer.choices[0].text]
    assert SECRET not in json.dumps(kept)


async def test_streams_and_conversations_are_known_alike(home: Home) -> None:
    """Characters are those that were handed over; equal prompts of a project are seen to be equal in any form."""
    body = {"model": "smol", "prompt": "abc", "max_tokens": 6, "n": 2, "temperature": 0}
    for stream in (True, False):
        said = HttpBody(data=json.dumps(body | {"stream": stream}).encode())
        call: Any = OpenAiServiceStub(home.channel).CreateCompletion(said, metadata=headers("a"))
        assert [message async for message in call]
    await GenerationServiceStub(home.channel).Generate(asked("abc"), metadata=headers("a"))
    await GenerationServiceStub(home.channel).Generate(asked("abc"), metadata=headers("b"))
    chat = {"model": "smol", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 1}
    said = HttpBody(data=json.dumps(chat).encode())
    call = OpenAiServiceStub(home.channel).CreateChatCompletion(said, metadata=headers("a"))
    assert [message async for message in call]
    await see(lambda: len(home.seen.known) == 5)
    known = [known for _, known in home.seen.known]
    streamed, whole, other_api, other_project, conversation = known
    assert streamed == whole
    assert whole.output_characters == 12
    assert other_api.prompt_fingerprint == whole.prompt_fingerprint
    assert other_project.prompt_fingerprint != whole.prompt_fingerprint
    assert conversation.input_characters == len("<user>abc\n<assistant>")


async def test_no_prompt_is_kept_or_logged_unless_a_rule_says_so(home: Home) -> None:
    """Of calls that end well, are refused, are cancelled or run out of time; not even in what is known of them."""
    stub = GenerationServiceStub(home.channel)
    with structlog.testing.capture_logs() as logs:
        await stub.Generate(asked(SECRET), metadata=headers("shop"))
        for wrong in (asked(SECRET, max_tokens=100_000), asked(SECRET * 1000)):
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Generate(wrong, metadata=headers("shop"))
        cancelled: Any = stub.GenerateStream(
            service.GenerateStreamRequest.FromString(asked(SECRET, 400).SerializeToString()),
            metadata=headers("shop"),
        )
        await cancelled.read()
        cancelled.cancel()
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Generate(asked(SECRET, 400), metadata=headers("shop"), timeout=0.002)
        await see(lambda: not home.worker.served.traffic.in_flight and not home.desk.waiting())
    assert SECRET not in str(logs)
    assert SECRET not in str([known for _, known in home.seen.known])
    written = [path.read_bytes() for path in home.folder.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data for data in written)
    assert not list(home.captured())


@pytest.mark.parametrize("home", ["auto"], indirect=True)
async def test_callers_leave_nothing_behind(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,024 projects and keys, whose texts are scored: the same series, and as many objects as before."""
    monkeypatch.setattr(text_desk, "MOST_SCORES", 100)
    home.seen.keep = False
    stub = GenerationServiceStub(home.channel)

    async def call_all(numbers: range) -> tuple[int, set[str]]:
        waiting = iter(numbers)

        async def one_after_another() -> None:
            for n in waiting:
                await stub.Generate(asked(f"{n}", 1), metadata=headers(f"project-{n}", n))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(16):
                tasks.create_task(one_after_another())
        await see(lambda: home.desk.events[DeskEvent.SCORED] == numbers.stop)
        gc.collect()
        text = prometheus_client.generate_latest(home.worker.metrics).decode()
        series = {line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"}
        return len(gc.get_objects()), series

    before, known = await call_all(range(2 * CALLERS))  # fills the cache of blocks, too
    after, still = await call_all(range(2 * CALLERS, 3 * CALLERS))
    assert after - before < CALLERS // 4
    assert still == known
