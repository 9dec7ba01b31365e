"""ModelInfer over grpcio: bytes in, bytes out, the same way as over the front, with what is known of forms."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from services.rpc.errors import CancelledError, InferplaneError
from services.worker.domain.call_head import CallHead, Headers
from services.worker.domain.grpc_message import PREFIX_BYTES
from services.worker.servicers.call import Context, asked, deadline, tenant
from services.worker.servicers.fast_inference import PATH, FastInference

_MOST_HEADS = 1024


class GrpcioInfer:
    """Begins each call as the front does, and waits for its end."""

    def __init__(self, inference: FastInference) -> None:
        self._inference = inference
        self._heads: dict[tuple[str | None, str | None, str, bool], CallHead] = {}

    def register(self, server: grpc.aio.Server) -> None:
        """Take the place of the method that was registered before."""
        _, service, method = PATH.decode().split("/")
        handler: Any = grpc.unary_unary_rpc_method_handler(self.infer)
        server.add_registered_method_handlers(service, {method: handler})

    async def infer(self, message: bytes, context: Context) -> bytes:
        """One inference. Raises InferplaneError."""
        call = _GrpcioCall(self._head(context), deadline(context))
        self._inference.begin(call, message)
        try:
            return await call.answered
        except asyncio.CancelledError:
            call.leave()
            raise

    def _head(self, context: Context) -> CallHead:
        """The same object for the same route and tenant."""
        route = asked(context, "", "")
        key = (route.routed_version, route.routed_endpoint, tenant(context), route.retried)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            head = self._heads[key] = CallHead(PATH, *key)
        return head


class _GrpcioCall:
    """Call of `ports.call`, for one answer without metadata."""

    __slots__ = ("answered", "arrived", "deadline", "head", "headers", "on_gone")

    def __init__(self, head: CallHead, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        self.head = head
        self.headers: Headers = ()
        self.arrived = loop.time()
        self.deadline = deadline
        self.on_gone: Callable[[InferplaneError], None] | None = None
        self.answered: asyncio.Future[bytes] = loop.create_future()

    def reply(self, message: bytes, initial: Headers = (), trailing: Headers = ()) -> None:
        """The answer."""
        self.on_gone = None
        if not self.answered.done():  # cancelled; `leave` follows
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
        told, self.on_gone = self.on_gone, None
        if told is not None:
            told(CancelledError("the caller has gone"))

    def start(self, initial: Headers = ()) -> None:
        """Of streams."""
        raise NotImplementedError

    def write(self, message: bytes) -> None:
        """Of streams."""
        raise NotImplementedError

    def finish(self, trailers: Headers) -> None:
        """Of calls that name a status themselves."""
        raise NotImplementedError
