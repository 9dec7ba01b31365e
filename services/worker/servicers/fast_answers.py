"""Answers to calls of known forms: a batch's are written in one pass, from the bytes of the whole batch's outputs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial

from inference import open_inference_pb2 as oip

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import known
from services.worker.domain.batch import Answer, Outputs, Terms, Waiting
from services.worker.domain.call_head import Headers
from services.worker.domain.grpc_message import PREFIX_BYTES
from services.worker.domain.request_use import RequestUse
from services.worker.domain.usage_row import Ended
from services.worker.domain.waiting import RunShare
from services.worker.drivers.no_budgets import NOTHING_RESERVED
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.tab import outcome_of
from services.worker.drivers.version_usage import VersionUsage
from services.worker.ports.allowance import Need, Reservation
from services.worker.ports.call import UnaryCall
from services.worker.ports.usage import AnsweredCall, Slot
from services.worker.servicers import grpc_messages
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.call import encoded
from services.worker.servicers.entry import Entering
from services.worker.servicers.message_forms import AnswerForm, Layout, answer_form

_METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(slots=True, eq=False)
class Form:
    """What is known of all calls of one form."""

    version: ServedVersion
    request: oip.ModelInferRequest  # without id and data
    terms: Terms  # as it was queued
    answers: FastAnswers
    need: Need  # what each may use
    answer: AnswerForm | None = None  # as the last one was


class FormedCall:
    """One call of a known form, from its admission to its end."""

    __slots__ = ("_entering", "call", "form", "ident", "reserved", "slot", "ticket")

    def __init__(self, call: UnaryCall, form: Form, ident: bytes) -> None:
        self.call = call
        self.form = form
        self.ident = ident
        self.ticket: Waiting | None = None
        self.slot: Slot | None = None  # where it is counted
        self.reserved: Reservation | None = None  # for it; None: nothing
        self._entering: Entering | None = None

    def enter(self, waiting: Waiting, size: int) -> None:
        """Set aside what it needs, count it, queue it. Raises InferplaneError if it is refused."""
        usage = self.form.version.usage
        assert isinstance(usage, VersionUsage)
        reserved = usage.allowance.reserve(self.call.head.caller, usage.version, self.form.need)
        if reserved is NOTHING_RESERVED:
            self._queue(usage, waiting, size)
        elif isinstance(reserved, Awaitable):
            go_on = partial(self._enter, usage, waiting, size)
            self._entering = Entering(reserved, go_on, self.fail, _METHOD)
            self.call.on_gone = self.gone
        else:
            self._enter(usage, waiting, size, reserved)

    def fail(self, error: InferplaneError, use: RequestUse | None = None) -> None:
        """End with an error."""
        self.form.version.end(self.call.arrived, error)
        self.close(error, use)
        self.call.fail(error)

    def gone(self, why: InferplaneError) -> None:
        """The caller has gone."""
        version = self.form.version
        if self._entering is not None:
            self._entering.leave()
        if self.ticket is not None:
            version.batcher.leave(self.ticket)
        version.end(self.call.arrived, why)
        self.close(why, None)

    def headers(self) -> Headers:
        """What the answer tells of budgets."""
        return () if self.reserved is None else encoded(self.reserved.trailers())

    def close(self, error: InferplaneError | None, use: RequestUse | None, size: int = 0) -> None:
        """Count how it ended, with an answer of this size or with an error; nothing if it is not counted."""
        slot, self.slot = self.slot, None
        usage = self.form.version.usage
        if slot is None or not isinstance(usage, VersionUsage):
            return
        use = use or RequestUse()
        duration = int((time.monotonic() - self.call.arrived) * 1e9)
        ended = Ended(duration, outcome_of(error), use.queue_ns, use.compute_ns, 0, 0, size)
        usage.journal.end(slot, ended)
        self.settle(use.compute_ns)

    def settle(self, compute_ns: int) -> None:
        """It used no more than its rows, and this much time."""
        if self.reserved is not None:
            rows = self.form.need.rows
            self.reserved.settle(Need(rows=rows, compute_seconds=compute_ns / 1e9))

    def _enter(
        self, usage: VersionUsage, waiting: Waiting, size: int, reserved: Reservation
    ) -> None:
        self._entering = None
        if reserved is not NOTHING_RESERVED:
            self.reserved = reserved
        self._queue(usage, waiting, size)

    def _queue(self, usage: VersionUsage, waiting: Waiting, size: int) -> None:
        form = self.form
        try:
            self.slot = usage.open_call(self.call, form.need.rows, size)
            self.ticket = form.version.batcher.enter(waiting)
        except InferplaneError:
            slot, self.slot = self.slot, None
            if slot is not None:
                usage.journal.cancel(slot)
            if self.reserved is not None:
                self.reserved.release()
            raise
        self.call.on_gone = self.gone


@dataclass(slots=True, eq=False)
class FastAnswers:
    """BatchSink of one version."""

    source: AnswerSource
    version: ServedVersion

    def answered(self, batch: Sequence[Waiting], outputs: Outputs, run: RunShare) -> None:
        """Write the answers of a batch."""
        arrivals: list[float] = []
        counted: list[AnsweredCall] = []
        try:
            self._answer_all(batch, outputs, run, (arrivals, counted))
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            self._fail_all(batch, known(error, _METHOD))
        finally:  # what was answered before a failure has ended, too
            if arrivals:
                now = time.monotonic()
                self.version.end_many(arrivals, now)
                if counted:  # before the answers leave: they wait until the whole batch is written
                    usage = self.version.usage
                    assert isinstance(usage, VersionUsage)
                    usage.journal.end_calls(counted, run, now)

    def _answer_all(
        self,
        batch: Sequence[Waiting],
        outputs: Outputs,
        run: RunShare,
        ended: tuple[list[float], list[AnsweredCall]],
    ) -> None:
        """Answer all; `ended` takes when they arrived, and what is to be counted of them."""
        arrivals, counted = ended
        blobs = {name: array.tobytes() for name, array in outputs.items()}
        last: Form | None = None
        answer: AnswerForm | None = None
        row = 0
        for waiting in batch:
            formed, rows = waiting.caller, waiting.terms.rows
            if formed is not None:
                waiting.caller = None
                form = formed.form
                if form is not last:
                    last, answer = form, self._answer(form, outputs)
                if answer is None:
                    waiting.use = RequestUse()
                    waiting.use.ran(run.started - waiting.arrived, run.of(rows))
                    cut = {n: outputs[n][row : row + rows] for n in waiting.outputs}
                    self._write(formed, cut, waiting.use)
                else:
                    framed = answer.framed(formed.ident, blobs, row, rows)
                    call, slot = formed.call, formed.slot
                    arrivals.append(call.arrived)
                    if slot is not None:
                        counted.append((slot, call.arrived, rows, len(framed) - PREFIX_BYTES))
                        formed.slot = None
                    if formed.reserved is None:
                        call.reply_framed(framed)
                    else:
                        formed.settle(run.of(rows))
                        call.reply(framed[PREFIX_BYTES:], formed.headers())
            row += rows

    @staticmethod
    def _fail_all(batch: Sequence[Waiting], error: InferplaneError) -> None:
        """What is left of a batch in whose midst something failed."""
        for waiting in batch:
            formed, waiting.caller = waiting.caller, None
            if formed is not None:
                formed.fail(error, waiting.use)

    def ended(self, waiting: Waiting, answer: Answer) -> None:
        """Write one that ended by itself."""
        formed: FormedCall = waiting.caller
        if isinstance(answer, InferplaneError):
            formed.fail(answer, waiting.use)
        else:
            self._write(formed, answer, waiting.use)

    def _answer(self, form: Form, outputs: Outputs) -> AnswerForm | None:
        """The form of answers to requests of a form in this batch; None: each is written by itself."""
        wanted = form.terms.outputs
        layout = Layout.of({name: outputs[name] for name in wanted})
        answer = form.answer
        if layout is None:
            return None
        if answer is not None and answer.layout == layout:
            return answer
        rows = form.terms.rows
        sample = {name: outputs[name][:rows] for name in wanted}
        if sum(array.nbytes for array in sample.values()) > self.source.max_message_bytes:
            return None  # it is refused with the limit named
        form.answer = answer_form(
            layout, grpc_messages.write(self.version.spec, form.request, sample)
        )
        return form.answer

    def _write(self, formed: FormedCall, outputs: Outputs, use: RequestUse | None) -> None:
        """The general way, for what has no form."""
        request = oip.ModelInferRequest()
        request.CopyFrom(formed.form.request)
        request.MergeFromString(formed.ident)
        try:
            self.source.check_size(sum(array.nbytes for array in outputs.values()))
            message = grpc_messages.write(self.version.spec, request, outputs).SerializeToString()
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            formed.fail(known(error, _METHOD), use)
            return
        self.version.end(formed.call.arrived, None)
        formed.close(None, use, len(message))
        formed.call.reply(message, formed.headers())
