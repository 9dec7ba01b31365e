"""The Open Inference Protocol over REST: HTTP bodies in and out, as Envoy's transcoder carries them."""

from dataclasses import replace
from typing import Any

import orjson
from google.api.httpbody_pb2 import HttpBody
from google.protobuf.json_format import MessageToDict
from inferplane.oip.v1 import rest_service_pb2 as rest
from inferplane.oip.v1 import rest_service_pb2_grpc

from services.rpc.errors import UnavailableError
from services.worker.domain import rest_request, rest_response
from services.worker.domain.infer_request import InferRequest, read_inputs, read_outputs
from services.worker.domain.rest_response import Answered
from services.worker.drivers.tab import there
from services.worker.servicers import grpc_messages, statistics_report
from services.worker.servicers.call import (
    Context,
    asked,
    deadline,
    header,
    mark_of_context,
    tenant,
)
from services.worker.servicers.elsewhere import of_registry
from services.worker.servicers.grpc_inference import EXTENSIONS, NAME, AnswerSource


class RestInferenceServicer(rest_service_pb2_grpc.RestInferenceServiceServicer):
    """Bodies in, the version's answer out; errors become `{"error": …}` at the edge."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    async def ServerLive(self, request: rest.ServerLiveRequest, context: Context) -> HttpBody:
        """It answers, so it lives."""
        return _json({"live": True})

    async def ServerReady(self, request: rest.ServerReadyRequest, context: Context) -> HttpBody:
        """Ready until it drains; clients look at the status alone."""
        if not self._source.is_ready():
            raise UnavailableError("this worker drains", reason="DRAINING", retry_after=0.0)
        return _json({"ready": True})

    async def ServerMetadata(
        self, request: rest.ServerMetadataRequest, context: Context
    ) -> HttpBody:
        """Name, release, extensions."""
        return _json({"name": NAME, "version": self._source.release, "extensions": EXTENSIONS})

    async def ModelReady(self, request: rest.ModelReadyRequest, context: Context) -> HttpBody:
        """200 if this worker serves the version, else an error: clients look at the status alone."""
        self._source.roster.find_any(asked(context, request.model_name, request.model_version))
        return _json({"name": request.model_name, "ready": True})

    async def ModelMetadata(self, request: rest.ModelMetadataRequest, context: Context) -> HttpBody:
        """Inputs and outputs."""
        version = self._source.roster.find_any(
            asked(context, request.model_name, request.model_version)
        )
        message = grpc_messages.metadata(request.model_name, version.spec)
        said = MessageToDict(message, always_print_fields_with_no_presence=True)
        for tensor in (*said["inputs"], *said["outputs"]):
            tensor["shape"] = [
                int(dim) for dim in tensor["shape"]
            ]  # JSON of protobuf has int64 as text
        return _json(said)

    async def ModelStatistics(
        self, request: rest.ModelStatisticsRequest, context: Context
    ) -> HttpBody:
        """What this worker has counted."""
        question = asked(context, request.model_name, request.model_version)
        return _json({"model_stats": statistics_report.answer(self._source.roster, question)})

    async def ModelInfer(self, request: rest.ModelInferRequest, context: Context) -> HttpBody:
        """One inference."""
        source = self._source
        question = asked(context, request.model_name, request.model_version)
        version = source.roster.find(question)
        spec = version.spec
        with version.measured():
            body = rest_request.decompress(
                request.http_body.data,
                header(context, "content-encoding") or "",
                source.max_message_bytes,
            )
            asked_for = rest_request.parse(body, header(context, rest_request.LENGTH_HEADER))
            options = asked_for.options
            if rest_request.forbids_storing(header(context, "cache-control")):
                options = replace(options, no_store=True)
            checked = InferRequest(
                read_inputs(spec.signature, asked_for.inputs, source.max_message_bytes),
                read_outputs(spec.signature, asked_for.outputs),
                options,
                grpc_messages.facts_for(spec, options),
                tenant(context),
                question.retried,
            )
            mark = mark_of_context(context, len(request.http_body.data))
            tab = await there(version.enter(checked, mark))
            with tab:
                outputs = await version.infer(checked, deadline(context), tab)
                source.check_size(sum(array.nbytes for array in outputs.values()))
                said = checked.facts.parameters() if checked.facts is not None else {}
                answered = Answered(request.model_name, spec.name.version, said)
                answer = rest_response.write(answered, asked_for, spec.signature, outputs)
                source.check_size(len(answer.body))
                tab.deliver(0, len(answer.body))
        headers = [*tab.headers()]
        if answer.json_length is not None:
            headers.append((rest_request.LENGTH_HEADER, str(answer.json_length)))
        if headers:
            await context.send_initial_metadata(headers)
        return HttpBody(content_type=answer.content_type, data=answer.body)

    async def RepositoryIndex(
        self, request: rest.RepositoryIndexRequest, context: Context
    ) -> HttpBody:
        """The registry's answer, not a worker's."""
        raise of_registry("RepositoryIndex")

    async def RepositoryModelLoad(
        self, request: rest.RepositoryModelLoadRequest, context: Context
    ) -> HttpBody:
        """The registry's answer, not a worker's."""
        raise of_registry("RepositoryModelLoad")

    async def RepositoryModelUnload(
        self, request: rest.RepositoryModelUnloadRequest, context: Context
    ) -> HttpBody:
        """The registry's answer, not a worker's."""
        raise of_registry("RepositoryModelUnload")


def _json(said: dict[str, Any]) -> HttpBody:
    return HttpBody(content_type="application/json", data=orjson.dumps(said))
