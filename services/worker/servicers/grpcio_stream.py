"""ModelStreamInfer over grpcio: one task reads, the handler writes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from inference import open_inference_pb2 as oip

from services.rpc.errors import CancelledError, InferplaneError, InvalidArgumentError
from services.rpc.interceptor import known
from services.worker.servicers import infer_stream
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.call import (
    ENDPOINT_HEADER,
    VERSION_HEADER,
    Context,
    deadline,
    header,
    mark_of_context,
    tenant,
)
from services.worker.servicers.infer_stream import InferStream, StreamHead

_MOST_UNREAD = 32  # answers that wait for grpc to take them; beyond, nothing more is read


async def answers(
    source: AnswerSource, requests: AsyncIterator[oip.ModelInferRequest], context: Context
) -> AsyncIterator[oip.ModelStreamInferResponse]:
    """All answers of one stream. Raises the error that ends it."""
    relay = _Relay(source, _head(context))
    reading = asyncio.create_task(relay.read(requests))
    try:
        while (answer := await relay.next()) is not None:
            yield answer
    finally:  # also when the caller has gone
        reading.cancel()
        relay.stream.gone(CancelledError("the caller has gone"))
        await asyncio.gather(reading, return_exceptions=True)


class _Relay:
    """Outlet of its stream: keeps answers until the handler takes them."""

    def __init__(self, source: AnswerSource, head: StreamHead) -> None:
        self._answers: deque[oip.ModelStreamInferResponse] = deque()
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._finished = False
        self._error: InferplaneError | None = None
        self.stream = InferStream(source, head, self)

    async def read(self, requests: AsyncIterator[oip.ModelInferRequest]) -> None:
        """Hand requests over, as long as there is room."""
        try:
            async for request in requests:
                # What the deserializer refuses comes as something else (services.rpc.interceptor).
                if isinstance(request, oip.ModelInferRequest):
                    self.stream.take(request, request.ByteSize())
                else:
                    self.stream.refuse(_undecodable())
                while self.stream.is_full or len(self._answers) >= _MOST_UNREAD:
                    self._room.clear()
                    await self._room.wait()
            self.stream.half_close()
        except Exception as error:  # noqa: BLE001 - as in the interceptor: the stream ends, and says so
            self.stream.gone(CancelledError("the stream failed"))
            self.finish(known(error, infer_stream.METHOD))

    async def next(self) -> oip.ModelStreamInferResponse | None:
        """The next answer; None: the stream has ended. Raises the error that ended it."""
        while not self._answers:
            if self._finished:
                if self._error is not None:
                    raise self._error
                return None
            self._more.clear()
            await self._more.wait()
        self._room.set()
        return self._answers.popleft()

    def write(self, answer: oip.ModelStreamInferResponse) -> None:
        """The next answer."""
        self._answers.append(answer)
        self._more.set()

    def finish(self, error: InferplaneError | None) -> None:
        """The end."""
        self._finished, self._error = True, error
        self._more.set()

    def moved(self) -> None:
        """There may be room."""
        self._room.set()


def _head(context: Context) -> StreamHead:
    return StreamHead(
        version=header(context, VERSION_HEADER) or None,
        endpoint=header(context, ENDPOINT_HEADER) or None,
        deadline=deadline(context),
        ends_at_errors=header(context, infer_stream.ERRORS_HEADER) == "true",
        tenant=tenant(context),
        mark=mark_of_context(context, 0),
    )


def _undecodable() -> InvalidArgumentError:
    return InvalidArgumentError(
        "the message is no ModelInferRequest; allowed: its protobuf encoding",
        reason="MALFORMED_MESSAGE",
    )
