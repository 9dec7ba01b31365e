"""The last of a text: how the call ended is counted before it is handed over, as clients leave with it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

from google.api.httpbody_pb2 import HttpBody
from inferplane.generation.v1 import generation_pb2
from inferplane.generation.v1 import generation_service_pb2 as service

from services.worker.domain.usage_row import Outcome
from services.worker.drivers.roster import Roster
from services.worker.drivers.served_text import ServedText
from services.worker.llm.domain.generation import GenerationRequest, Piece, RequestId
from services.worker.llm.ports.engine import Deliver, EngineLoad
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.generation import GenerationServicer
from services.worker.servicers.openai_service import OpenAiServicer
from tests.unit.worker.servicers.counting import Counting
from tests.unit.worker.servicers.test_text_answer import ToldEngine, served


@dataclass
class Idle(ToldEngine):
    """Says how busy it is, too, and when it was asked."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def submit(self, request: GenerationRequest, deliver: Deliver) -> RequestId:
        self.asked.set()
        return super().submit(request, deliver)

    def load(self) -> EngineLoad:
        return EngineLoad(
            waiting=0, running=0, blocks=1, used_blocks=0, cached_blocks=0, kv_usage=0.0, waste=0.0
        )


@dataclass
class Shelf:
    """A roster of one version."""

    served: ServedText

    def find_text(self, _asked: object) -> ServedText:
        return self.served


@dataclass
class Written:
    """A call's context that keeps what is written, and what was counted by then."""

    counting: Counting
    taken: asyncio.Event = field(default_factory=asyncio.Event)  # something was written
    written: list[tuple[bytes, list[Outcome]]] = field(default_factory=list)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> None:
        return None

    def set_trailing_metadata(self, _metadata: object) -> None:
        pass

    async def send_initial_metadata(self, _metadata: object) -> None:
        pass

    async def write(self, message: HttpBody) -> None:
        self.written.append((message.data, list(self.counting.rows.outcomes)))
        self.taken.set()


def source(engine: Idle, counting: Counting) -> AnswerSource:
    shelf = Shelf(replace(served(engine), usage=counting.usage()))
    return AnswerSource(cast(Roster, shelf), lambda: True, "1", 2**20)


async def told(engine: Idle, taken: asyncio.Event) -> None:
    """Two pieces once somebody has asked, the second when the first was taken."""
    await engine.asked.wait()
    engine.tell(Piece(index=0, text="a", token_ids=(1,)))
    await taken.wait()
    engine.tell(Piece(index=0, text="b", token_ids=(2,)), ends=True)


async def completed(*, stream: bool) -> list[tuple[bytes, list[Outcome]]]:
    engine, counting = Idle(), Counting()
    context = Written(counting)
    asked = {"model": "m", "prompt": [1], "max_tokens": 2, "stream": stream}
    body = HttpBody(data=json.dumps(asked).encode())
    servicer = OpenAiServicer(source(engine, counting))
    if not stream:
        context.taken.set()  # nothing is before all of it
    telling = asyncio.create_task(told(engine, context.taken))
    await servicer.CreateCompletion(body, cast(Any, context))
    await telling
    counting.check()
    return context.written


async def test_the_last_event_comes_when_the_call_is_counted() -> None:
    """Whoever leaves at `[DONE]`, or loses the worker then, was answered; an event before says nothing of it."""
    first, last = await completed(stream=True)
    assert first[1] == []
    assert last[0].endswith(b"data: [DONE]\n\n")
    assert last[1] == [Outcome.OK]


async def test_a_whole_text_comes_when_the_call_is_counted() -> None:
    """Of OpenAI's API, whose answer has a length of its own."""
    ((text, outcomes),) = await completed(stream=False)
    assert b'"text":"ab"' in text
    assert outcomes == [Outcome.OK]


async def test_the_last_message_of_a_stream_comes_when_the_call_is_counted() -> None:
    """Of gRPC: it has the counts, and what follows is only the status."""
    engine, counting = Idle(), Counting()
    asked = service.GenerateStreamRequest(
        model_name="m",
        prompt=generation_pb2.Prompt(token_ids=generation_pb2.TokenIds(ids=[1])),
        sampling=generation_pb2.SamplingSettings(max_tokens=2),
    )
    context = Written(counting)
    telling = asyncio.create_task(told(engine, context.taken))
    seen = []
    servicer = GenerationServicer(source(engine, counting))
    async for one in servicer.GenerateStream(asked, cast(Any, context)):
        seen.append((one.HasField("usage"), list(counting.rows.outcomes)))
        context.taken.set()
    await telling
    counting.check()
    assert seen == [(False, []), (True, [Outcome.OK])]
