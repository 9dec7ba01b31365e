"""ModelInfer over the front, the hot path: no task and no future, the batch's answer is written as it comes.

It holds no rule of its own: messages are read and written by `grpc_messages`, versions found by the roster.
"""

from inference import open_inference_pb2 as oip

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import known
from services.worker.domain.batch import Answer, Outputs
from services.worker.domain.routing import Asked
from services.worker.drivers.served_version import ServedVersion
from services.worker.ports.call import Call
from services.worker.ports.gate import Ticket
from services.worker.servicers import grpc_messages
from services.worker.servicers.front_methods import parsed
from services.worker.servicers.grpc_inference import AnswerSource

PATH = b"/inference.GRPCInferenceService/ModelInfer"
_PATH = PATH.decode()


class FastInference:
    """Begins calls; each is a `_Running` until it ends."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    def begin(self, call: Call, message: bytes) -> None:
        """Check a request and queue it."""
        head = call.head
        try:
            request: oip.ModelInferRequest = parsed(oip.ModelInferRequest.FromString, message)
            version = self._source.roster.find(
                Asked(request.model_name, request.model_version, head.version, head.endpoint)
            )
        except InferplaneError as error:
            call.fail(error)
            return
        _Running(self._source, call, request, version).begin()


class _Running:
    """One call from its admission to its end."""

    __slots__ = ("_call", "_request", "_source", "_started", "_ticket", "_version")

    def __init__(
        self,
        source: AnswerSource,
        call: Call,
        request: oip.ModelInferRequest,
        version: ServedVersion,
    ) -> None:
        self._source = source
        self._call = call
        self._request = request
        self._version = version

    def begin(self) -> None:
        """Check and queue."""
        version = self._version
        self._started = version.begin()
        try:
            checked = grpc_messages.read(
                version.spec.signature, self._request, self._source.max_message_bytes
            )
            self._ticket: Ticket = version.admit(checked, self._call.deadline, self._deliver)
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            self._fail(known(error, _PATH))
            return
        self._call.on_gone = self._gone

    def _deliver(self, answer: Answer) -> None:
        if isinstance(answer, InferplaneError):
            self._fail(answer)
            return
        try:
            message = self._written(answer)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(known(error, _PATH))
            return
        self._version.end(self._started, None)
        self._call.reply(message)

    def _written(self, outputs: Outputs) -> bytes:
        self._source.check_size(sum(array.nbytes for array in outputs.values()))
        answer = grpc_messages.write(self._version.spec, self._request, outputs)
        return answer.SerializeToString()

    def _fail(self, error: InferplaneError) -> None:
        self._version.end(self._started, error)
        self._call.fail(error)

    def _gone(self, why: InferplaneError) -> None:
        self._version.leave(self._ticket)
        self._version.end(self._started, why)
