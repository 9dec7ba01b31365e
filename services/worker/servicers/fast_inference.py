"""ModelInfer over the front, the hot path: no task and no future, the batch's answers are written as they come.

It holds no rule of its own: messages are read and written by `grpc_messages`, versions found by the roster. What those
said of a request is remembered by the form of its bytes (`request_template`), until a version comes, changes or goes.
"""

from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from inference import open_inference_pb2 as oip

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import known
from services.worker.domain.batch import Answer, Outputs, Waiting
from services.worker.domain.call_head import Route
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.request_template import TemplateBook
from services.worker.domain.routing import Asked
from services.worker.drivers.batcher import Batcher
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.tab import NO_TAB, AnyTab
from services.worker.ports.allowance import Need
from services.worker.ports.call import UnaryCall
from services.worker.ports.gate import Ticket
from services.worker.servicers import grpc_messages, message_forms
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.call import encoded, mark_of
from services.worker.servicers.entry import Entering
from services.worker.servicers.fast_answers import FastAnswers, Form, FormedCall
from services.worker.servicers.front_methods import parsed

PATH = b"/inference.GRPCInferenceService/ModelInfer"
_PATH = PATH.decode()

_LARGEST_FORMED = 64 * 1024  # bytes of a message; checking a larger one is little beside moving it
_MOST_FORMS = 1024
_MOST_SEEN = 4096


class FastInference:
    """Begins calls: those of a known form with what is known, others as `_Running`."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source
        self._epoch = -1  # of the roster when the forms were learnt
        self._books: dict[Route, TemplateBook[Form]] = {}
        self._forms = 0
        self._seen: set[int] = set()  # hashes of forms that came once
        self._answers: dict[Batcher, FastAnswers] = {}
        source.roster.watch(self._forget)

    def begin(self, call: UnaryCall, message: bytes) -> None:
        """Check a request and queue it."""
        if self._epoch != self._source.roster.epoch:
            self._forget()
        book = self._books.get(call.head.route)
        found = book.find(message) if book is not None else None
        if found is None or not found[0].version.is_plain:
            self._begin_unknown(call, message)
            return
        form, ident, feeds = found
        version = form.version
        version.traffic.begin()
        formed = FormedCall(call, form, ident)
        waiting = Waiting(
            form.terms, feeds, call.arrived, call.deadline, None, form.answers, formed
        )
        try:
            if version.usage.is_counted:
                formed.enter(waiting, len(message))
            else:
                formed.ticket = version.batcher.enter(waiting)
                call.on_gone = formed.gone
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            formed.fail(known(error, _PATH))

    def _begin_unknown(self, call: UnaryCall, message: bytes) -> None:
        head = call.head
        try:
            request: oip.ModelInferRequest = parsed(oip.ModelInferRequest.FromString, message)
            version = self._source.roster.find(
                Asked(
                    request.model_name,
                    request.model_version,
                    head.version,
                    head.endpoint,
                    head.retried,
                )
            )
        except Exception as error:  # noqa: BLE001 - as above
            call.fail(known(error, _PATH))
            return
        running = _Running(self._source, call, request, version)
        checked = running.begin(len(message))
        # Each retried call is to be looked at: a worker may have died of it.
        if checked is None or len(message) > _LARGEST_FORMED or head.retried:
            return
        try:
            self._learn(running, message, checked)
        except Exception as error:  # noqa: BLE001 - as above; the call itself is under way, and others come behind it
            known(error, _PATH)  # it is in the log

    def _learn(self, running: "_Running", message: bytes, checked: InferRequest) -> None:
        """Remember a form that comes for the second time."""
        version, like = running.version, running.ticket
        if not (version.is_plain and isinstance(like, Waiting) and checked.facts is None):
            return
        if like.terms.group is None:  # its rows don't count those of its answer
            return
        found = message_forms.request_form(version.spec.signature, running.request, message)
        if found is None:
            return
        template, bare = found
        mark = hash((running.call.head.route, template.head, template.rest))
        if mark not in self._seen:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen.add(mark)
            return
        if self._forms >= _MOST_FORMS:  # those still in use come back at once
            self._forget()
        need = Need(rows=like.terms.rows)
        form = Form(version, bare, like.terms, self._answers_of(version), need)
        self._books.setdefault(running.call.head.route, TemplateBook()).add(template, form)
        self._forms += 1

    def _answers_of(self, version: ServedVersion) -> FastAnswers:
        answers = self._answers.get(version.batcher)
        if answers is None:
            answers = self._answers[version.batcher] = FastAnswers(self._source, version)
        return answers

    def _forget(self) -> None:
        """What is in the queue keeps what it needs."""
        self._epoch = self._source.roster.epoch
        self._books.clear()
        self._seen.clear()
        self._answers.clear()
        self._forms = 0


class _Running:
    """One call from its admission to its end."""

    __slots__ = ("_facts", "_source", "_started", "_tab", "call", "request", "ticket", "version")

    def __init__(
        self,
        source: AnswerSource,
        call: UnaryCall,
        request: oip.ModelInferRequest,
        version: ServedVersion,
    ) -> None:
        self._source = source
        self.call = call
        self.request = request
        self.version = version
        self._tab: AnyTab = NO_TAB

    def begin(self, size: int) -> InferRequest | None:
        """Check and queue; None: it was refused, or waits to be let in."""
        version, call = self.version, self.call
        self._started = version.begin()
        try:
            checked = grpc_messages.read(
                version.spec,
                self.request,
                self._source.max_message_bytes,
                call.head.tenant,
            )
            if call.head.retried:
                checked = replace(checked, retried=True)
            self._facts = checked.facts
            entered = version.enter(checked, mark_of(call, size))
            go_on = partial(self._admit, checked)
            if isinstance(entered, Awaitable):
                entering = Entering(entered, go_on, self._fail, _PATH)
                call.on_gone = partial(self._gone_early, entering)
                return None
            go_on(entered)
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            self._fail(known(error, _PATH))
            return None
        return checked

    def _admit(self, checked: InferRequest, tab: AnyTab) -> None:
        self._tab = tab
        if tab.use is not None:
            checked = replace(checked, use=tab.use)
        try:
            self.ticket: Ticket = self.version.admit(checked, self.call.deadline, self._deliver)
        except InferplaneError:
            tab.refuse()
            raise
        self.call.on_gone = self._gone

    def _deliver(self, answer: Answer) -> None:
        if isinstance(answer, InferplaneError):
            self._fail(answer)
            return
        try:
            message = self._written(answer)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(known(error, _PATH))
            return
        self.version.end(self._started, None)
        self._tab.deliver(0, len(message))
        self._tab.close(None)
        self.call.reply(message, encoded(self._tab.headers()))

    def _written(self, outputs: Outputs) -> bytes:
        self._source.check_size(sum(array.nbytes for array in outputs.values()))
        answer = grpc_messages.write(self.version.spec, self.request, outputs, self._facts)
        return answer.SerializeToString()

    def _fail(self, error: InferplaneError) -> None:
        self.version.end(self._started, error)
        self._tab.close(error)
        self.call.fail(error)

    def _gone(self, why: InferplaneError) -> None:
        self.version.leave(self.ticket)
        self.version.end(self._started, why)
        self._tab.close(why)

    def _gone_early(self, entering: Entering, why: InferplaneError) -> None:
        entering.leave()
        self.version.end(self._started, why)
