"""Answers to calls of known forms: a batch's are written in one pass, from the bytes of the whole batch's outputs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from inference import open_inference_pb2 as oip

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import known
from services.worker.domain.batch import Answer, Outputs, Terms, Waiting
from services.worker.drivers.served_version import ServedVersion
from services.worker.ports.call import UnaryCall
from services.worker.servicers import grpc_messages
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.message_forms import AnswerForm, Layout, answer_form

_METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(slots=True, eq=False)
class Form:
    """What is known of all calls of one form."""

    version: ServedVersion
    request: oip.ModelInferRequest  # without id and data
    terms: Terms  # as it was queued
    answers: FastAnswers
    answer: AnswerForm | None = None  # as the last one was


class FormedCall:
    """One call of a known form, from its admission to its end."""

    __slots__ = ("call", "form", "ident", "ticket")

    def __init__(self, call: UnaryCall, form: Form, ident: bytes) -> None:
        self.call = call
        self.form = form
        self.ident = ident
        self.ticket: Waiting

    def fail(self, error: InferplaneError) -> None:
        """End with an error."""
        self.form.version.end(self.call.arrived, error)
        self.call.fail(error)

    def gone(self, why: InferplaneError) -> None:
        """The caller has gone."""
        version = self.form.version
        version.batcher.leave(self.ticket)
        version.end(self.call.arrived, why)


@dataclass(slots=True, eq=False)
class FastAnswers:
    """BatchSink of one version."""

    source: AnswerSource
    version: ServedVersion

    def answered(self, batch: Sequence[Waiting], outputs: Outputs) -> None:
        """Write the answers of a batch."""
        blobs = {name: array.tobytes() for name, array in outputs.items()}
        last: Form | None = None
        answer: AnswerForm | None = None
        row, arrivals = 0, []
        for waiting in batch:
            formed, rows = waiting.caller, waiting.terms.rows
            if formed is not None:
                waiting.caller = None
                form = formed.form
                if form is not last:
                    last, answer = form, self._answer(form, outputs)
                if answer is None:
                    self._write(formed, {n: outputs[n][row : row + rows] for n in waiting.outputs})
                else:
                    call = formed.call
                    call.reply_framed(answer.framed(formed.ident, blobs, row, rows))
                    arrivals.append(call.arrived)
            row += rows
        if arrivals:
            self.version.end_many(arrivals, time.monotonic())

    def ended(self, waiting: Waiting, answer: Answer) -> None:
        """Write one that ended by itself."""
        formed: FormedCall = waiting.caller
        if isinstance(answer, InferplaneError):
            formed.fail(answer)
        else:
            self._write(formed, answer)

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

    def _write(self, formed: FormedCall, outputs: Outputs) -> None:
        """The general way, for what has no form."""
        request = oip.ModelInferRequest()
        request.CopyFrom(formed.form.request)
        request.MergeFromString(formed.ident)
        try:
            self.source.check_size(sum(array.nbytes for array in outputs.values()))
            message = grpc_messages.write(self.version.spec, request, outputs).SerializeToString()
        except Exception as error:  # noqa: BLE001 - as in the interceptor, which grpcio's calls pass
            formed.fail(known(error, _METHOD))
            return
        self.version.end(formed.call.arrived, None)
        formed.call.reply(message)
