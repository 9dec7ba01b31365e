"""Methods of the front: what the generated code registers on a server, begun without one."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import base64
import inspect
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from services.rpc.errors import CancelledError, InvalidArgumentError
from services.rpc.interceptor import known
from services.worker.domain import call_head
from services.worker.domain.call_head import Headers
from services.worker.ports.call import Call, Method, StreamMethod

Metadata = Sequence[tuple[str, str | bytes]]


class MethodTable:
    """Methods by path. Generated `add_…_to_server` functions take it for a server."""

    def __init__(self) -> None:
        self.methods: dict[bytes, Method] = {}
        self.streams: dict[bytes, StreamMethod] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # a running task needs a reference

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Serve these methods of a service; those whose request is many messages are served otherwise, by `streams`."""
        for name, handler in handlers.items():
            if handler.request_streaming:
                continue
            path = f"/{service}/{name}"
            self.methods[path.encode()] = _Served(path, handler, self._tasks).begin

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same methods in an older form; generated code calls both."""


class _Served:
    """A method of a servicer; each call is a task."""

    def __init__(self, path: str, handler: Any, tasks: set[asyncio.Task[None]]) -> None:
        self._path = path
        self._handler = handler
        self._tasks = tasks

    def begin(self, call: Call, message: bytes) -> None:
        """Begin a call."""
        task = asyncio.get_running_loop().create_task(self._run(call, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        call.on_gone = lambda _why: void(task.cancel())

    async def _run(self, call: Call, message: bytes) -> None:
        context = FrontContext(call, self._handler.response_serializer)
        try:
            request = parsed(self._handler.request_deserializer, message)
            if self._handler.response_streaming:
                await self._stream(request, context)
            else:
                answer = await self._handler.unary_unary(request, context)
                context.answer(answer)
        except grpc.aio.AbortError:
            return
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            call.fail(known(error, self._path))

    async def _stream(self, request: Any, context: FrontContext) -> None:
        if inspect.isasyncgenfunction(self._handler.unary_stream):
            async with aclosing(self._handler.unary_stream(request, context)) as answers:
                async for answer in answers:
                    await context.write(answer)
        else:
            await self._handler.unary_stream(request, context)
        context.end()


class FrontContext:
    """What our servicers use of `grpc.aio.ServicerContext`."""

    def __init__(self, call: Call, serialize: Any) -> None:
        self._call = call
        self._serialize = serialize
        self._initial: Headers = ()
        self._trailing: Headers = ()

    def invocation_metadata(self) -> Metadata:
        """What the caller and the edge said; values of `-bin` keys are bytes."""
        return tuple(
            (key.decode("ascii", "replace"), _value(key, value))
            for key, value in call_head.metadata(self._call.headers)
        )

    def time_remaining(self) -> float | None:
        """Seconds that the caller still waits; None: for ever."""
        deadline = self._call.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Metadata that comes before the answer."""
        self._initial = _encoded(metadata)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Metadata that comes with the status."""
        self._trailing = _encoded(metadata)

    async def write(self, message: Any) -> None:
        """One of several answers; returns once there is room for another."""
        call = self._call
        call.start(self._initial)
        call.write(self._serialize(message))
        if call.is_clogged:
            drained = asyncio.Event()
            call.on_drained = drained.set
            await drained.wait()
        if call.is_over:
            raise CancelledError("nobody reads the answers any more")

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        """End the call with a status."""
        status = [(b"grpc-status", b"%d" % code.value[0])]
        if details:
            status.append((b"grpc-message", details.encode("ascii", "replace")))
        self._call.finish((*status, *_encoded(trailing_metadata), *self._trailing))
        raise grpc.aio.AbortError(details)

    def answer(self, message: Any) -> None:
        """The one answer of a unary call."""
        self._call.reply(self._serialize(message), self._initial, self._trailing)

    def end(self) -> None:
        """A stream of answers is complete."""
        self._call.start(self._initial)
        self._call.finish(((b"grpc-status", b"0"), *self._trailing))


def parsed(deserialize: Any, message: bytes) -> Any:
    """A message from its bytes. Raises InvalidArgumentError."""
    try:
        return deserialize(message)
    except DecodeError as error:
        raise InvalidArgumentError(
            f"{len(message)} bytes are not the method's request message; allowed: its protobuf encoding",
            reason="MALFORMED_MESSAGE",
            metadata={"size": str(len(message))},
        ) from error


def void(_: object) -> None:
    """Drop a result."""


def _value(key: bytes, value: bytes) -> str | bytes:
    if key.endswith(b"-bin"):
        try:
            return base64.b64decode(value + b"=" * (-len(value) % 4))
        except ValueError:
            return value
    return value.decode("utf-8", "replace")


def _encoded(metadata: Metadata) -> Headers:
    return tuple(
        (
            key.encode(),
            value.encode() if isinstance(value, str) else base64.b64encode(value).rstrip(b"="),
        )
        for key, value in metadata
    )
