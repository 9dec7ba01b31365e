"""A chat: takes lines one by one, sends what is said, shows the answer as it comes."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import yaml
from google.protobuf.descriptor import FieldDescriptor
from inferplane.generation.v1 import generation_pb2

from services.cli.adapters import failure_text, generation
from services.cli.adapters.edge import Edge, to_error
from services.cli.adapters.generation_screen import ShownText, TextScreen
from services.cli.adapters.settings_table import shown
from services.cli.adapters.terminal import Terminal
from services.cli.domain import chat_line
from services.cli.domain.chat_line import Verb
from services.cli.domain.conversation import Conversation
from services.cli.domain.exit_code import UsageError
from services.rpc.errors import InferplaneError

# A chat shows one text, piece by piece; these make several, or more than text.
_NOT_HERE = frozenset({"n", "logprobs", "top_logprobs", "logit_bias"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Whom one chats with, and how."""

    endpoint: str
    version: str | None  # None: by the traffic split
    system: str
    sampling: generation_pb2.SamplingSettings
    seconds: float  # longest wait for a whole answer
    interactive: bool  # somebody sits there: failures are shown and it goes on


class Chat:
    """One conversation; `take` is called for one line after the other."""

    def __init__(self, edge: Edge, settings: ChatSettings, out: Terminal) -> None:
        """Nothing is sent before something is said."""
        self._edge = edge
        self._settings = settings
        self._out = out
        self._screen = TextScreen(out)
        self._conversation = Conversation(settings.system)
        self._sampling = generation_pb2.SamplingSettings()
        self._sampling.CopyFrom(settings.sampling)
        self.interrupted = False  # by Ctrl-C, with nobody there to go on

    async def take(self, line: str) -> bool:
        """Do what a line asks for; False: the chat is over."""
        read = chat_line.parse(line)
        try:
            await self._do(read)
        except InferplaneError as error:
            if not self._settings.interactive:
                raise
            self._out.say(failure_text.as_lines(error))
        return read.verb is not Verb.EXIT and not self.interrupted

    async def _do(self, line: chat_line.ChatLine) -> None:
        match line.verb:
            case Verb.SAY:
                await self._say(line.text)
            case Verb.SYSTEM:
                self._conversation.system = line.text
                self._out.say("system message " + ("set" if line.text else "removed"))
            case Verb.RESET:
                self._conversation.reset()
                self._out.say("forgotten what was said")
            case Verb.SET:
                self._set(line.text)
            case Verb.HELP:
                self._out.say(chat_line.HELP)
            case Verb.UNKNOWN:
                raise UsageError(f"{line.text} is no command of the chat; /help shows all")
            case Verb.EXIT | Verb.NOTHING:
                pass

    async def _say(self, question: str) -> None:
        """Ask, and show the answer; what was seen of it belongs to the conversation."""
        call = generation.GenerationCall(
            endpoint=self._settings.endpoint,
            version=self._settings.version,
            prompt=generation.conversation_prompt(self._conversation.with_question(question)),
            sampling=self._sampling,
            seconds=self._settings.seconds,
        )
        answer = ShownText()
        answering = asyncio.ensure_future(self._answer(call, answer))
        with _stopped_by_interrupt(answering):
            await asyncio.wait({answering})
        self._screen.end_line()
        if answering.cancelled():
            self._out.say("stopped")
            self.interrupted = not self._settings.interactive
        else:
            answering.result()
            self._out.say(answer.told)
        self._conversation.keep(question, answer.text)

    async def _answer(self, call: generation.GenerationCall, answer: ShownText) -> None:
        try:
            await self._screen.stream(generation.stream(self._edge, call), answer)
        except grpc.aio.AioRpcError as error:
            raise to_error(error, self._edge.address) from error

    def _set(self, text: str) -> None:
        """`name=value`, `name=` for what the chat began with, or nothing to show what is set."""
        name, equals, value = (part.strip() for part in text.partition("="))
        if text and not equals:
            raise UsageError(
                f"/set {text}: allowed: /set NAME=VALUE, for example /set temperature=0"
            )
        if name:
            self._sampling = _changed(self._sampling, name, value, self._settings.sampling)
        fields = shown(self._sampling)
        told = [f"{field}={setting}" for field, setting in fields.items()]
        self._out.say(", ".join(told) or "all as the server does by default")


@contextmanager
def _stopped_by_interrupt(answering: "asyncio.Future[None]") -> Iterator[None]:
    """Ctrl-C stops this answer alone; the handler goes with it, so that at the prompt Ctrl-C is Python's again."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, answering.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        answering.cancel()


def _changed(
    sampling: generation_pb2.SamplingSettings,
    name: str,
    value: str,
    first: generation_pb2.SamplingSettings,
) -> generation_pb2.SamplingSettings:
    fields = generation_pb2.SamplingSettings.DESCRIPTOR.fields_by_name
    field = fields.get(name)
    if field is None or name in _NOT_HERE:
        allowed = ", ".join(each for each in fields if each not in _NOT_HERE)
        raise UsageError(f"/set {name}: allowed: {allowed}")
    changed = generation_pb2.SamplingSettings()
    changed.CopyFrom(sampling)
    changed.ClearField(field.name)  # type: ignore[arg-type]  # one of its names, as just looked up
    if value:
        given = generation.sampling_settings({name: _typed(field, value)}, f"/set {name}")
        changed.MergeFrom(given)
    elif name in shown(first):
        setattr(changed, name, getattr(first, name))
    return changed


def _typed(field: FieldDescriptor, value: str) -> Any:
    """The value as YAML would read it; texts stay as they were typed, and a list has one."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return [value] if field.is_repeated else value
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        read = value
    return [read] if field.is_repeated else read
