"""One ModelStreamInfer call without its transport: requests are queued as they come and answered in that order."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from inference import open_inference_pb2 as oip

from services.rpc.errors import (
    CancelledError,
    InferplaneError,
    InvalidArgumentError,
    UnavailableError,
)
from services.rpc.interceptor import known
from services.worker.domain.answer_line import AnswerLine, Place
from services.worker.domain.batch import Answer, Outputs
from services.worker.domain.caller import NOBODY
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.routing import Asked
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.tab import NO_TAB, AnyTab, CallMark
from services.worker.servicers import grpc_messages
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.entry import Entering

_NOBODYS = CallMark(NOBODY, bytes(16))

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
ERRORS_HEADER = "triton_grpc_error"  # `true`: an error ends the stream with its status

# Requests on one stream; beyond, nothing more is read until answers have left.
_MOST_IN_FLIGHT = 128
_ASKS_FINAL = "triton_enable_empty_final_response"
_IS_FINAL = "triton_final_response"


@dataclass(frozen=True, slots=True)
class StreamHead:
    """What the call said before its first message."""

    version: str | None  # `x-inferplane-version`
    endpoint: str | None  # `x-inferplane-endpoint`
    deadline: float | None  # of the monotonic clock
    ends_at_errors: bool  # `triton_grpc_error`
    tenant: str = ""  # `x-inferplane-project`
    mark: CallMark | None = None  # of all its requests; None: they are counted for nobody


class Outlet(Protocol):
    """Where answers go."""

    def write(self, answer: oip.ModelStreamInferResponse) -> None:
        """The next answer."""
        ...

    def finish(self, error: InferplaneError | None) -> None:
        """The end, once: OK, or with the error's status."""
        ...

    def moved(self) -> None:
        """Answers have left: if the stream is not full any more, reading may go on."""
        ...


class InferStream:
    """OpenStream; told of messages by its transport, it writes answers to its outlet. One event loop only."""

    def __init__(self, source: AnswerSource, head: StreamHead, outlet: Outlet) -> None:
        """Register; `take`, `half_close` and `gone` follow."""
        self._source = source
        self._streams = source.roster.streams
        self.head = head
        self._outlet = outlet
        self._line: AnswerLine[_Answered] = AnswerLine()
        self._running: set[_Request] = set()
        self._parts = 0  # requests that came
        self._versions: set[str] = set()
        self._half_closed = False
        self._ending: UnavailableError | None = None
        self._over = False
        self._leaving = False  # answers are being written
        self._streams.add(self)

    @property
    def is_full(self) -> bool:
        """Whether no more may be taken now."""
        line = self._line
        return (
            self._over
            or self._ending is not None
            or len(line) >= _MOST_IN_FLIGHT
            or line.size >= self._source.max_message_bytes
        )

    @property
    def is_over(self) -> bool:
        """Whether it has its status."""
        return self._over

    def take(self, request: oip.ModelInferRequest, size: int) -> None:
        """Check and queue the next request; `size` is its message's. Nothing, once the stream is to end."""
        if self._over or self._ending is not None:
            return
        place = self._line.join(size)
        running = _Request(self, request, place)
        try:
            version = self._find(request)
        except InferplaneError as error:
            self.answer(place, _Answered.of(request, error))
            return
        self._running.add(running)
        running.begin(self._source, version, self._mark(size))
        why = self._streams.why_end(str(version.spec.name))
        if why is not None:
            self.end(why)

    def refuse(self, error: InferplaneError) -> None:
        """A message that could not be read has its place too."""
        if not self._over and self._ending is None:
            self.answer(self._line.join(0), _Answered.of(oip.ModelInferRequest(), error))

    def half_close(self) -> None:
        """The caller has asked everything: end after the last answer."""
        self._half_closed = True
        self._leave()

    def gone(self, why: InferplaneError) -> None:
        """Nobody waits any more: what waits leaves before it is computed, nothing is written."""
        self._close(why)

    def uses(self, version: str) -> bool:
        """Whether it has sent requests to a version."""
        return version in self._versions

    def end(self, why: UnavailableError) -> None:
        """Take no more requests; once those that run are answered, end."""
        self._ending = self._ending or why
        self._leave()

    def answer(self, place: "Place[_Answered]", answered: "_Answered") -> None:
        """A request has its answer; it leaves once those before it have left."""
        if self._over:
            return
        self._line.answer(place, answered)
        self._leave()

    def done(self, request: "_Request") -> None:
        """A request does not run any more."""
        self._running.discard(request)

    def _mark(self, size: int) -> CallMark:
        """Of its next request."""
        part, self._parts = self._parts, self._parts + 1
        return replace(self.head.mark or _NOBODYS, part=part, size=size)

    def _find(self, request: oip.ModelInferRequest) -> ServedVersion:
        """Envoy has seen the first message only, so each is compared with where the stream was routed."""
        head = self.head
        try:
            version = self._source.roster.find(
                Asked(request.model_name, request.model_version, head.version, head.endpoint)
            )
        except InvalidArgumentError as error:
            raise _with_hint(error, "a stream is of one endpoint; open another one") from error
        self._versions.add(str(version.spec.name))
        return version

    def _leave(self) -> None:
        """Write what may leave; writing may bring the next request, and with it this call again."""
        if self._leaving or self._over:
            return
        self._leaving = True
        try:
            while (answered := self._line.leave()) is not None:
                if answered.error is not None and self.head.ends_at_errors:
                    self._finish(answered.error)
                    return
                self._outlet.write(answered.message)
                self._outlet.moved()
        finally:
            self._leaving = False
        if not self._line:
            if self._ending is not None:
                self._finish(self._ending)
            elif self._half_closed:
                self._finish(None)

    def _finish(self, error: InferplaneError | None) -> None:
        self._close(CancelledError("the stream has ended"))
        self._outlet.finish(error)

    def _close(self, why: InferplaneError) -> None:
        self._over = True
        self._streams.discard(self)
        running, self._running = self._running, set()
        for request in running:
            request.leave(why)


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer on its way out."""

    message: oip.ModelStreamInferResponse
    error: InferplaneError | None = None

    @classmethod
    def of(cls, request: oip.ModelInferRequest, error: InferplaneError) -> "_Answered":
        """A failed request: the text, its id, and for programs what is in a status's details otherwise."""
        message = oip.ModelStreamInferResponse(error_message=error.message)
        message.infer_response.id = request.id
        said = message.infer_response.parameters
        said["error_code"].string_param = error.kind.name
        said["error_reason"].string_param = error.reason
        if error.retry_after is not None:
            said["retry_after_ms"].int64_param = round(error.retry_after * 1000)
        return cls(message, error)


class _Request:
    """One request from its admission to its answer."""

    __slots__ = (
        "_facts",
        "_leave",
        "_place",
        "_request",
        "_source",
        "_started",
        "_stream",
        "_tab",
        "_version",
    )

    def __init__(
        self, stream: InferStream, request: oip.ModelInferRequest, place: Place[_Answered]
    ) -> None:
        self._stream = stream
        self._request = request
        self._place = place
        self._leave: Callable[[], None] | None = None
        self._tab: AnyTab = NO_TAB

    def begin(self, source: AnswerSource, version: ServedVersion, mark: CallMark) -> None:
        """Check and queue."""
        self._source, self._version = source, version
        self._started = version.begin()
        try:
            checked = grpc_messages.read(
                version.spec, self._request, source.max_message_bytes, self._stream.head.tenant
            )
            self._facts = checked.facts
            entered = version.enter(checked, mark)
            go_on = partial(self._admit, checked)
            if isinstance(entered, Awaitable):
                self._leave = Entering(entered, go_on, self._fail, METHOD).leave
            else:
                go_on(entered)
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which unary calls pass
            self._fail(known(error, METHOD))

    def _admit(self, checked: InferRequest, tab: AnyTab) -> None:
        self._tab, version = tab, self._version
        if tab.use is not None:
            checked = replace(checked, use=tab.use)
        try:
            ticket = version.admit(checked, self._stream.head.deadline, self._deliver)
        except InferplaneError:
            tab.refuse()
            raise
        self._leave = lambda: version.leave(ticket)

    def leave(self, why: InferplaneError) -> None:
        """Nobody waits for it any more."""
        if self._leave is not None:
            self._leave()
            self._version.end(self._started, why)
            self._tab.close(why)

    def _deliver(self, answer: Answer) -> None:
        if isinstance(answer, InferplaneError):
            self._fail(answer)
            return
        try:
            answered = _Answered(self._written(answer))
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(known(error, METHOD))
            return
        self._end(None, answered)

    def _written(self, outputs: Outputs) -> oip.ModelStreamInferResponse:
        self._source.check_size(sum(array.nbytes for array in outputs.values()))
        response = grpc_messages.write(self._version.spec, self._request, outputs, self._facts)
        asked = self._request.parameters
        if _ASKS_FINAL in asked and asked[_ASKS_FINAL].bool_param:
            response.parameters[_IS_FINAL].bool_param = True
        return oip.ModelStreamInferResponse(infer_response=response)

    def _fail(self, error: InferplaneError) -> None:
        self._end(error, _Answered.of(self._request, error))

    def _end(self, error: InferplaneError | None, answered: _Answered) -> None:
        self._leave = None
        self._stream.done(self)
        self._version.end(self._started, error)
        if error is None and self._tab is not NO_TAB:
            self._tab.deliver(0, answered.message.ByteSize())
        self._tab.close(error)
        self._stream.answer(self._place, answered)


def _with_hint(error: InvalidArgumentError, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{error.message} ({hint})",
        reason=error.reason,
        metadata=error.metadata,
        violations=error.violations,
    )
