"""inferplane.generation.v1: text by gRPC, whole or as it is written."""

from collections.abc import AsyncIterator

from inferplane.generation.v1 import generation_service_pb2 as service
from inferplane.generation.v1 import generation_service_pb2_grpc

from services.worker.drivers.served_text import ServedText
from services.worker.servicers import generation_messages, load_report
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.call import Context, asked, deadline, mark_of_context, tenant
from services.worker.servicers.generation_messages import Request
from services.worker.servicers.text_answer import TextAnswer
from services.worker.servicers.text_prompt import CallTerms, request_of


class GenerationServicer(generation_service_pb2_grpc.GenerationServiceServicer):
    """Messages in, the engine's text out."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    async def Generate(
        self, request: service.GenerateRequest, context: Context
    ) -> service.GenerateResponse:
        """All of the text at once."""
        served = self._find(request, context)
        record = self._source.record(context, served)
        with TextAnswer(served, self._source.reader, record) as answer:
            await _begin(answer, served, request, context)
            update = await answer.whole()
            assert update.summary is not None
            response = service.GenerateResponse(
                model_name=request.model_name,
                model_version=served.spec.name.version,
                id=request.id,
                choices=generation_messages.choices(update.pieces, served.tokenizer.token_name),
                usage=generation_messages.usage(update.summary),
                timings=generation_messages.timings(update.summary),
            )
            self._source.check_size(size := response.ByteSize())
            answer.deliver(update, size)
        await _tell(context, answer)
        context.set_trailing_metadata(load_report.trailers(served))
        return response

    async def GenerateStream(
        self, request: service.GenerateStreamRequest, context: Context
    ) -> AsyncIterator[service.GenerateStreamResponse]:
        """The text as it is written."""
        served = self._find(request, context)
        shown = served.tokenizer.token_name
        response = service.GenerateStreamResponse(
            model_name=request.model_name, model_version=served.spec.name.version, id=request.id
        )
        record = self._source.record(context, served)
        with TextAnswer(served, self._source.reader, record) as answer:
            await _begin(answer, served, request, context)
            while True:
                update = await answer.next()
                response.pieces.extend(generation_messages.pieces(update.pieces, shown))
                if update.summary is not None:
                    break
                await _tell(context, answer)
                answer.deliver(update, response.ByteSize())
                yield response
                response = service.GenerateStreamResponse()
            response.usage.CopyFrom(generation_messages.usage(update.summary))
            response.timings.CopyFrom(generation_messages.timings(update.summary))
            context.set_trailing_metadata(load_report.trailers(served))
            await _tell(context, answer)
            answer.deliver(update, response.ByteSize())
        yield response  # once it is counted how the call ended: who has all of it may go

    def _find(self, request: Request, context: Context) -> ServedText:
        return self._source.roster.find_text(
            asked(context, request.model_name, request.model_version)
        )


async def _begin(
    answer: TextAnswer, served: ServedText, request: Request, context: Context
) -> None:
    prompt, field, sampling = generation_messages.read(request, served)
    terms = CallTerms(
        tenant=tenant(context),
        arrived=answer.arrived,
        deadline=deadline(context),
        priority=request.priority,
    )
    one = await request_of(served, prompt, field, sampling, terms)
    await answer.admit([one], mark_of_context(context, request.ByteSize()))


async def _tell(context: Context, answer: TextAnswer) -> None:
    """What budgets have left, before the first piece."""
    if headers := answer.headers():
        await context.send_initial_metadata(headers)
