"""ModelStreamInfer over the front: no task, no future; answers are written as batches come."""

from inference import open_inference_pb2 as oip

from services.rpc.errors import InferplaneError
from services.worker.domain.caller import REQUEST_ID_HEADER
from services.worker.ports.call import MessageSink, StreamCall
from services.worker.servicers import infer_stream
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.call import mark_of
from services.worker.servicers.front_methods import parsed
from services.worker.servicers.infer_stream import InferStream, StreamHead

PATH = infer_stream.METHOD.encode()
_ERRORS_HEADER = infer_stream.ERRORS_HEADER.encode()
_OK = ((b"grpc-status", b"0"),)


class FastStream:
    """Begins streams; each is a `_Carried` until it ends."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    def open(self, call: StreamCall) -> MessageSink:
        """A caller opened one."""
        return _Carried(self._source, call)


class _Carried:
    """MessageSink of its call and Outlet of its stream."""

    __slots__ = ("_call", "_stream")

    def __init__(self, source: AnswerSource, call: StreamCall) -> None:
        head = call.head
        self._call = call
        said = dict(call.headers)
        call.request_id = said.get(REQUEST_ID_HEADER)
        self._stream = InferStream(
            source,
            StreamHead(
                version=head.version,
                endpoint=head.endpoint,
                deadline=call.deadline,
                ends_at_errors=said.get(_ERRORS_HEADER) == b"true",
                tenant=head.tenant,
                mark=mark_of(call, 0),
            ),
            self,
        )
        call.on_gone = self._stream.gone

    def message(self, message: bytes) -> None:
        """The next request."""
        try:
            request: oip.ModelInferRequest = parsed(oip.ModelInferRequest.FromString, message)
        except InferplaneError as error:
            self._stream.refuse(error)
        else:
            self._stream.take(request, len(message))
        if self._stream.is_full or self._call.is_clogged:
            self._call.pause()

    def ended(self) -> None:
        """No request follows."""
        self._stream.half_close()

    def drained(self) -> None:
        """The peer reads again."""
        self.moved()

    def write(self, answer: oip.ModelStreamInferResponse) -> None:
        """The next answer."""
        self._call.start()
        self._call.write(answer.SerializeToString())

    def finish(self, error: InferplaneError | None) -> None:
        """The end."""
        if error is None:
            self._call.start()
            self._call.finish(_OK)
        else:
            self._call.fail(error)

    def moved(self) -> None:
        """Go on reading, if there is room."""
        if not self._stream.is_full and not self._call.is_clogged:
            self._call.resume()
