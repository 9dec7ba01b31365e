"""ModelInfer over grpcio: bytes in, bytes out, the same way as over the front, with what is known of forms."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from services.rpc.errors import CancelledError, InferplaneError
from services.worker.domain.call_head import CallHead, Headers
from services.worker.domain.caller import Caller
from services.worker.domain.grpc_message import PREFIX_BYTES
from services.worker.domain.routing import Asked
from services.worker.drivers.tab import CallMark
from services.worker.servicers.call import Context, asked, decoded, mark_of_context
from services.worker.servicers.fast_inference import PATH, FastInference

_MOST_HEADS = 1024
_QUIET_TURNS = 8  # of the loop, in which no call came
_LONGEST = 0.005  # seconds that a call waits for others


class GrpcioInfer:
    """Begins calls as the front does, and waits for their ends.

    grpcio hands over calls one by one, each some turns of the loop after it came. While they keep coming they are
    gathered, so that they share a run as if they had come together: a turn costs little, a run of one request as
    much as grpcio takes for a call. A lone call, after one that was alone too, does not wait.
    """

    def __init__(self, inference: FastInference) -> None:
        self._inference = inference
        self._gathered: list[tuple[_GrpcioCall, bytes]] = []
        self._open = 0  # calls that have no answer
        self._together = 1  # calls that were begun together the last time
        self._until = 0.0  # they are gathered at most
        self._quiet = 0  # turns of the loop since the last came
        self._heads: dict[tuple[Asked, Caller, int], CallHead] = {}

    def register(self, server: grpc.aio.Server) -> None:
        """Take the place of the method that was registered before."""
        _, service, method = PATH.decode().split("/")
        handler: Any = grpc.unary_unary_rpc_method_handler(self.infer)
        server.add_registered_method_handlers(service, {method: handler})

    async def infer(self, message: bytes, context: Context) -> bytes:
        """One inference. Raises InferplaneError."""
        mark = mark_of_context(context, 0)
        call = _GrpcioCall(self._head(context, mark), mark.deadline)
        call.request_id = mark.request_id.hex().encode()
        self._open += 1
        if self._open == 1 and self._together == 1:
            self._inference.begin(call, message)
        else:
            self._gather(call, message)
        try:
            answer = await call.answered
            if call.initial:
                await context.send_initial_metadata(decoded(call.initial))
            return answer
        except asyncio.CancelledError:
            call.leave()
            raise
        finally:
            self._open -= 1

    def _gather(self, call: _GrpcioCall, message: bytes) -> None:
        self._quiet = 0
        self._gathered.append((call, message))
        if len(self._gathered) == 1:
            self._until = call.arrived + _LONGEST
            self._turn(asyncio.get_running_loop())

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._quiet += 1
        if self._quiet <= _QUIET_TURNS and loop.time() < self._until:
            loop.call_soon(self._turn, loop)
            return
        gathered, self._gathered = self._gathered, []
        self._together = len(gathered)
        for call, message in gathered:
            if not call.answered.done():  # its caller has gone
                self._inference.begin(call, message)

    def _head(self, context: Context, mark: CallMark) -> CallHead:
        """The same object for the same route and caller."""
        route = asked(context, "", "")
        key = (route, mark.caller, mark.attempt)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            head = self._heads[key] = CallHead(
                PATH,
                route.routed_version,
                route.routed_endpoint,
                mark.caller.project,
                mark.attempt,
                mark.caller,
            )
        return head


class _GrpcioCall:
    """UnaryCall of `ports.call`."""

    __slots__ = (
        "answered",
        "arrived",
        "deadline",
        "head",
        "headers",
        "initial",
        "on_gone",
        "request_id",
    )

    def __init__(self, head: CallHead, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        self.head = head
        self.headers: Headers = ()
        self.request_id: bytes | None = None
        self.initial: Headers = ()  # metadata that comes before the answer
        self.arrived = loop.time()
        self.deadline = deadline
        self.on_gone: Callable[[InferplaneError], None] | None = None
        self.answered: asyncio.Future[bytes] = loop.create_future()

    def reply(self, message: bytes, initial: Headers = (), trailing: Headers = ()) -> None:
        """The answer."""
        self.on_gone = None
        if not self.answered.done():  # cancelled; `leave` follows
            self.initial = initial
            self.answered.set_result(message)

    def reply_framed(self, framed: bytes) -> None:
        """The answer, without the prefix, which grpcio adds."""
        self.reply(framed[PREFIX_BYTES:])

    def fail(self, error: InferplaneError) -> None:
        """No answer."""
        self.on_gone = None
        if not self.answered.done():
            self.answered.set_exception(error)

    def leave(self) -> None:
        """Nobody waits any more."""
        if self.answered.done() and not self.answered.cancelled():
            self.answered.exception()  # that nobody sees it is no fault
        told, self.on_gone = self.on_gone, None
        if told is not None:
            told(CancelledError("the caller has gone"))
