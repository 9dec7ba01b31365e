"""Turns errors into gRPC statuses, for every method of a server, in this one place.

Domain errors become their canonical code with exactly one `ErrorInfo` (and `BadRequest`, `RetryInfo` where they apply).
Aborts and cancellation pass. Anything unknown becomes INTERNAL without leaking its text; it is logged with a traceback.
"""

from __future__ import annotations  # the stubs are generic, the classes are not

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from services.rpc.errors import (
    DOMAIN,
    InferplaneError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)

_log = structlog.get_logger(__name__)

DETAILS_KEY = "grpc-status-details-bin"
RETRY_KEY = "retry-after"
STANDBY_KEY = "x-inferplane-standby"  # with a refusal by a standby: the edge then asks another peer
_STANDBY = "STANDBY"  # reason of such an error
_STOPPED = grpc.StatusCode.UNAVAILABLE  # of a call that outlasts its server's grace time

# In bytes; with what else is among an answer's headers, and details in base64, below the 8 KiB of grpc's receivers.
_LONGEST_MESSAGE = 1024
_LONGEST_DETAILS = 4608
_LONGEST_VALUE = 512  # of one text in the details
_BOX_BYTES = 64  # what the name of a detail's type takes
_CUT = " ..."

# Looks at a call before its servicer does: its context and the method's path. Raises one of our errors.
Guard = Callable[["grpc.aio.ServicerContext[Any, Any]", str], None]
# Answers, or writes its answers to the context.
_Behaviour = Callable[[Any, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Any]]


def code_of(error: InferplaneError) -> grpc.StatusCode:
    """The canonical status code of an error."""
    return grpc.StatusCode[error.kind.name]


def to_status(error: InferplaneError) -> status_pb2.Status:
    """The error as `google.rpc.Status` with its details (AIP-193), short enough for any receiver.

    Receivers refuse metadata that is too long, grpc by chance from 8 KiB on, and then learn nothing. Of a long text
    the beginning is told, of many violations as many as fit.
    """
    message = fitting(error.message)
    metadata = {key: fitting(value, _LONGEST_VALUE) for key, value in error.metadata.items()}
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    ]
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.violations:
        used = len(message.encode()) + sum(detail.ByteSize() + _BOX_BYTES for detail in details)
        details.insert(1, _violations(error, _LONGEST_DETAILS - used - _BOX_BYTES))
    packed = []
    for detail in details:
        box = AnyMessage()
        box.Pack(detail)
        packed.append(box)
    return status_pb2.Status(code=code_of(error).value[0], message=message, details=packed)


def fitting(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """The text, or its beginning, so that it takes at most `longest` bytes as gRPC writes a status message."""
    if len(text) <= longest and _is_plain(text):
        return text
    taken = kept = 0
    for index, character in enumerate(text):
        # Anything but printable ASCII is percent-encoded, byte by byte.
        taken += 1 if _is_plain(character) else 3 * len(character.encode(errors="replace"))
        if taken <= longest - len(_CUT):
            kept = index + 1
        elif taken > longest:
            return text[:kept] + _CUT
    return text


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "%" not in text


def _violations(error: InferplaneError, room: int) -> error_details_pb2.BadRequest:
    found = error_details_pb2.BadRequest()
    for violation in error.violations:
        found.field_violations.add(
            field=fitting(violation.field, _LONGEST_VALUE),
            description=fitting(violation.description, _LONGEST_VALUE),
        )
        if found.ByteSize() > room:
            del found.field_violations[-1]
            break
    return found


async def abort(
    context: grpc.aio.ServicerContext[Any, Any],
    error: InferplaneError,
    trailing: Sequence[tuple[str, str]] = (),
) -> NoReturn:
    """End the call with the error's status and details, and what else is to be told with it."""
    status = to_status(error)
    told = ((DETAILS_KEY, status.SerializeToString()), *trailing)
    if error.reason == _STANDBY:
        told = (*told, (STANDBY_KEY, "1"))
    trailers = told if any(key == RETRY_KEY for key, _ in told) else (*told, *retry_header(error))
    await context.abort(code_of(error), status.message, trailing_metadata=trailers)
    raise AssertionError("abort returned")


def retry_header(error: InferplaneError) -> tuple[tuple[str, str], ...]:
    """When to try again, as HTTP says it (RFC 9110, 10.2.3): the edge hands it to those who call by HTTP."""
    if error.retry_after is None:
        return ()
    return ((RETRY_KEY, str(max(1, math.ceil(error.retry_after)))),)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler so that servicers only raise domain errors."""

    def __init__(self, guard: Guard | None = None) -> None:
        """One interceptor per server: it remembers the server's handlers."""
        self._guard = guard
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._statuses = _Statuses()
        self._calls = _Calls()

    async def until_told(self) -> None:
        """Wait until the statuses of calls that have failed by now are on their way."""
        await self._statuses.until_sent()

    @property
    def begun(self) -> int:
        """Calls that have come so far."""
        return self._calls.begun

    async def end_calls(self) -> int:
        """Cancel what runs, and wait until it has ended; callers hear UNAVAILABLE. How many they were."""
        return await self._calls.end()

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the method's handler, wrapped; it is the same for every call of the method."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is not None:
            return wrapped
        handler = await continuation(handler_call_details)
        if handler is None:  # unknown method: grpc answers UNIMPLEMENTED
            return None
        return self._wrapped.setdefault(method, self.wrapped(handler, method))

    def wrapped(self, handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        """The same method, with its errors as statuses."""
        wrap = _wrap_stream if handler.response_streaming else _wrap_unary
        return wrap(handler, _Keeper(method, self._statuses, self._calls, self._guard))


class _Statuses:
    """Statuses of failed calls while they are being sent."""

    def __init__(self) -> None:
        self._sending = 0
        self._sent = asyncio.Event()

    async def send(
        self, context: grpc.aio.ServicerContext[Any, Any], method: str, error: Exception
    ) -> NoReturn:
        """End the call with the error's status."""
        self._sending += 1
        try:
            await abort(context, known(error, method))
        except grpc.aio.InternalError as failure:  # so gRPC says that the caller has gone meanwhile
            _log.info("nobody is left to hear of a failed call", method=method)
            raise asyncio.CancelledError from failure
        finally:
            self._sending -= 1
            self._sent.set()

    async def until_sent(self) -> None:
        """Wait until none is being sent."""
        while self._sending:
            self._sent.clear()
            await self._sent.wait()


class _Calls:
    """Calls that are with their servicers."""

    def __init__(self) -> None:
        self._contexts: dict[asyncio.Task[Any], grpc.aio.ServicerContext[Any, Any]] = {}
        self.begun = 0
        self._ending = False
        self._left = asyncio.Event()

    def begin(self, context: grpc.aio.ServicerContext[Any, Any]) -> asyncio.Task[Any]:
        """From now on `end` ends the call. Raises UnavailableError if it has been before."""
        if self._ending:
            raise _stopping()
        task = asyncio.current_task()
        assert task is not None
        self._contexts[task] = context
        self.begun += 1
        return task

    def leave(self, task: asyncio.Task[Any]) -> None:
        """The servicer is done with it."""
        del self._contexts[task]
        if self._ending:
            self._left.set()

    async def end(self) -> int:
        """Cancel all, and wait until each has been left; what must run to its completion does."""
        self._ending = True
        ended = dict(self._contexts)
        for task, context in ended.items():
            context.set_code(_STOPPED)
            task.cancel()
        while self._contexts:
            self._left.clear()
            await self._left.wait()
        return len(ended)


def _stopping() -> UnavailableError:
    return UnavailableError("the server is stopping; try again", reason="STOPPING")


def known(error: Exception, method: str) -> InferplaneError:
    """The error if it is one of ours; anything else is logged and becomes INTERNAL without its text."""
    if isinstance(error, InferplaneError):
        return error
    _log.exception("call failed unexpectedly", method=method, exc_info=error)
    return InternalError("internal error; the server's log has the reason")


class _Undecodable:
    """Stands for a request whose bytes are no message of its type."""


def _decoder(decode: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """`decode`, but bytes that it refuses become a request that `_refuse_undecodable` knows.

    What a deserializer raises, gRPC itself would answer: with UNKNOWN and Python's words.
    """
    if decode is None:  # the method takes bytes
        return None

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            return _Undecodable()

    return decoded


def _refuse_undecodable(request: Any, method: str) -> None:
    if isinstance(request, _Undecodable):
        raise InvalidArgumentError(
            f"the bytes sent are no message that {method} takes",
            reason="UNDECODABLE_MESSAGE",
            metadata={"method": method},
        )


class _Keeper:
    """What surrounds each call of one method."""

    def __init__(
        self, method: str, statuses: _Statuses, calls: _Calls, guard: Guard | None
    ) -> None:
        self._method = method
        self._statuses = statuses
        self._calls = calls
        self._guard = guard

    async def keep(
        self, behaviour: _Behaviour, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """What the servicer answers; its errors end the call with their statuses."""
        try:
            return await self._kept(behaviour, request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the one place that turns the unknown into INTERNAL
            await self._statuses.send(context, self._method, error)

    async def _kept(
        self, behaviour: _Behaviour, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        task = self._calls.begin(context)
        try:
            if self._guard is not None:
                self._guard(context, self._method)
            _refuse_undecodable(request, self._method)
            return await behaviour(request, context)
        except asyncio.CancelledError as error:
            if context.code() is not _STOPPED:  # the caller has gone
                raise
            task.uncancel()
            raise _stopping() from error
        finally:
            self._calls.leave(task)


def _wrap_unary(handler: Any, keeper: _Keeper) -> grpc.RpcMethodHandler[Any, Any]:
    behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await keeper.keep(behaviour, request, context)

    make = (
        grpc.stream_unary_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(call, _decoder(handler.request_deserializer), handler.response_serializer)


def _wrap_stream(handler: Any, keeper: _Keeper) -> grpc.RpcMethodHandler[Any, Any]:
    behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream

    async def write_all(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        async with aclosing(behaviour(request, context)) as responses:
            async for response in responses:
                await context.write(response)

    # grpc.aio takes handlers of two forms: generators, and coroutines that call context.write (grpcio's own health
    # servicer is one of those). What it does with a generator it would do outside of here, where nobody is told.
    write = write_all if inspect.isasyncgenfunction(behaviour) else behaviour

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await keeper.keep(write, request, context)

    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )
    return make(call, _decoder(handler.request_deserializer), handler.response_serializer)
