"""Text from language models through the edge, as any gRPC client asks for it."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferplane.generation.v1 import generation_pb2, generation_service_pb2

from services.cli.adapters import yaml_message
from services.cli.adapters.edge import Edge
from services.cli.domain.conversation import Message
from services.cli.domain.exit_code import UsageError
from services.cli.domain.generation_pace import GenerationPace


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCall:
    """What is asked of whom."""

    endpoint: str
    version: str | None  # None: by the traffic split
    prompt: generation_pb2.Prompt
    sampling: generation_pb2.SamplingSettings
    priority: int = 0  # lower goes first
    seconds: float  # until the last token


def text_prompt(text: str) -> generation_pb2.Prompt:
    """Text that is continued as it is."""
    return generation_pb2.Prompt(text=_unicode(text))


def conversation_prompt(messages: Iterable[Message]) -> generation_pb2.Prompt:
    """A conversation, for the model's chat template."""
    said = [generation_pb2.ChatMessage(role=m.role, content=_unicode(m.content)) for m in messages]
    return generation_pb2.Prompt(conversation=generation_pb2.Conversation(messages=said))


def _unicode(text: str) -> str:
    """The text, unless it holds bytes of the command line that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the prompt is no UTF-8 text: {error.reason}") from error
    return text


def sampling_settings(given: Mapping[str, Any], where: str) -> generation_pb2.SamplingSettings:
    """Settings by the proto's names; None and empty lists are left out. UsageError names what is wrong."""
    fields = {name: value for name, value in given.items() if value is not None and value != []}
    return yaml_message.read(fields, generation_pb2.SamplingSettings(), where)


async def generate(edge: Edge, call: GenerationCall) -> generation_service_pb2.GenerateResponse:
    """All of the text at once."""
    request = generation_service_pb2.GenerateRequest(
        model_name=call.endpoint,
        model_version=call.version or "",
        prompt=call.prompt,
        sampling=call.sampling,
        priority=call.priority,
    )
    return await edge.generation.Generate(request, timeout=call.seconds)


async def stream(
    edge: Edge, call: GenerationCall
) -> AsyncIterator[generation_service_pb2.GenerateStreamResponse]:
    """The text as it is made; whoever stops reading cancels the call."""
    request = generation_service_pb2.GenerateStreamRequest(
        model_name=call.endpoint,
        model_version=call.version or "",
        prompt=call.prompt,
        sampling=call.sampling,
        priority=call.priority,
    )
    begun = edge.generation.GenerateStream(request, timeout=call.seconds)
    try:
        async for response in begun:
            yield response
    finally:
        begun.cancel()


def pace(
    usage: generation_pb2.Usage, timings: generation_pb2.Timings, texts: int
) -> GenerationPace:
    """What the server counted and measured."""
    return GenerationPace(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_prompt_tokens,
        completion_tokens=usage.completion_tokens,
        texts=texts,
        first_token=timings.time_to_first_token.ToNanoseconds() / 1e9,
        total=timings.total.ToNanoseconds() / 1e9,
    )
