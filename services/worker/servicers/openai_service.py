"""OpenAI's API for text: JSON in, JSON or events out, as Envoy's transcoder carries them."""

from collections.abc import Callable, Sequence
from typing import Any

from google.api.httpbody_pb2 import HttpBody
from inferplane.openai.v1 import openai_service_pb2 as service
from inferplane.openai.v1 import openai_service_pb2_grpc

from services.rpc import interceptor
from services.rpc.errors import InferplaneError
from services.worker.domain.routing import Asked
from services.worker.drivers.served_text import ServedText
from services.worker.servicers import load_report, openai_errors, openai_fields
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.call import Context, asked, deadline, mark_of_context, tenant
from services.worker.servicers.elsewhere import of_registry
from services.worker.servicers.openai_answer import ChatWriter, CompletionWriter, Heading, Writer
from services.worker.servicers.openai_request import OpenAiRequest, Read, read_chat, read_completion
from services.worker.servicers.text_answer import TextAnswer
from services.worker.servicers.text_prompt import (
    CallTerms,
    TextPrompt,
    TokenPrompt,
    limits_of,
    request_of,
)

_EVENTS, _JSON = "text/event-stream", "application/json"
_FINGERPRINT = 12  # of a version's digest


class OpenAiServicer(openai_service_pb2_grpc.OpenAiServiceServicer):
    """Both methods are coroutines that write, so that a caller who goes ends them where they are."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    async def CreateChatCompletion(  # type: ignore[override] # the stubs know of generators only
        self, request: HttpBody, context: Context
    ) -> None:
        """The next message of a conversation."""
        await _Call(self._source, context, read_chat, ChatWriter).answer(request.data)

    async def CreateCompletion(  # type: ignore[override] # as above
        self, request: HttpBody, context: Context
    ) -> None:
        """What follows texts."""
        await _Call(self._source, context, read_completion, CompletionWriter).answer(request.data)

    async def ListModels(self, request: service.ListModelsRequest, context: Context) -> HttpBody:
        """The registry's answer, not a worker's."""
        raise of_registry("ListModels")

    async def GetModel(self, request: service.GetModelRequest, context: Context) -> HttpBody:
        """The registry's answer, not a worker's."""
        raise of_registry("GetModel")


class _Call:
    """One call, from its body to its end."""

    def __init__(
        self,
        source: AnswerSource,
        context: Context,
        read: Read,
        writer: Callable[[Heading], Writer],
    ) -> None:
        self._source = source
        self._context = context
        self._read = read
        self._writer = writer
        self._begun = False  # something was sent

    async def answer(self, body: bytes) -> None:
        """What fails before anything was sent has its status, what fails later has an event of its own."""
        self._size = len(body)
        try:
            said = openai_fields.parse(body)
            await self._answer(said, openai_fields.model(said))
        except InferplaneError as error:
            if self._begun:
                await self._write(openai_errors.event(error), _EVENTS)
            else:
                await interceptor.abort(self._context, error, openai_errors.trailers(error))

    async def _answer(self, said: Any, model: str) -> None:
        served = self._source.roster.find_text(self._asked(model))
        record = self._source.record(self._context, served)
        with TextAnswer(served, self._source.reader, record) as answer:
            request = self._read(said, limits_of(served))
            writer = self._writer(_heading(served, model, request))
            await self._begin(answer, served, request)
            if request.echo:
                writer.begin(_texts(served, request), request.sampling.n)
            if request.stream:
                last, form = await self._stream(answer, writer), _EVENTS
            else:
                last, form = await self._whole(answer, writer), _JSON
        # Once it is counted how the call ended: clients leave with the last event.
        await self._write(last, form, answer.headers())
        self._context.set_trailing_metadata(load_report.trailers(served))

    async def _whole(self, answer: TextAnswer, writer: Writer) -> bytes:
        """All of it, counted and not written yet."""
        update = await answer.whole()
        assert update.summary is not None
        whole = writer.whole(update.pieces, update.summary)
        self._source.check_size(len(whole))
        answer.deliver(update, len(whole))
        return whole

    async def _stream(self, answer: TextAnswer, writer: Writer) -> bytes:
        """Write all but the last events, which are counted too."""
        while True:
            update = await answer.next()
            events = writer.events(update.pieces)
            if update.summary is not None:
                events += writer.last(update.summary)
            answer.deliver(update, len(events))
            if update.summary is not None:
                return events
            if events:
                await self._write(events, _EVENTS, answer.headers())

    def _asked(self, model: str) -> Asked:
        endpoint, _, version = model.partition("@")
        return asked(self._context, endpoint, version)

    async def _begin(self, answer: TextAnswer, served: ServedText, request: OpenAiRequest) -> None:
        terms = CallTerms(
            tenant=tenant(self._context),
            arrived=answer.arrived,
            deadline=deadline(self._context),
            priority=request.priority,
        )
        several = len(request.prompts) > 1
        requests = [
            await request_of(
                served,
                prompt,
                f"{request.prompt_field}[{number}]" if several else request.prompt_field,
                request.sampling,
                terms,
            )
            for number, prompt in enumerate(request.prompts)
        ]
        await answer.admit(requests, mark_of_context(self._context, self._size))

    async def _write(
        self, data: bytes, content_type: str, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._begun = True
        if headers:
            await self._context.send_initial_metadata(headers)
        await self._context.write(HttpBody(content_type=content_type, data=data))


def _heading(served: ServedText, model: str, request: OpenAiRequest) -> Heading:
    return Heading(
        model=model,
        fingerprint=f"fp_{served.spec.digest[:_FINGERPRINT]}",
        include_usage=request.include_usage,
        tokenizer=served.tokenizer,
    )


def _texts(served: ServedText, request: OpenAiRequest) -> list[str]:
    """The prompts as texts."""
    texts = []
    for prompt in request.prompts:
        if isinstance(prompt, TextPrompt):
            texts.append(prompt.text)
        elif isinstance(prompt, TokenPrompt):
            of = served.tokenizer.token_bytes
            texts.append(b"".join(of(token) for token in prompt.ids).decode("utf-8", "replace"))
    return texts
