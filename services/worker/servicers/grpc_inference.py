"""The Open Inference Protocol over gRPC."""

from collections.abc import AsyncIterator

from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

from services.rpc.errors import UnavailableError
from services.worker.drivers.tab import there
from services.worker.servicers import grpc_messages, grpcio_stream, statistics_report
from services.worker.servicers.answer_source import AnswerSource as AnswerSource
from services.worker.servicers.call import Context, asked, deadline, mark_of_context, tenant
from services.worker.servicers.elsewhere import of_registry

NAME = "inferplane"
EXTENSIONS = (
    "binary_tensor_data",
    "sequence",
    "schedule_policy",
    "statistics",
    "model_repository",
)


class GrpcInferenceServicer(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Messages in, the version's answer out."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    async def ServerLive(
        self, request: oip.ServerLiveRequest, context: Context
    ) -> oip.ServerLiveResponse:
        """It answers, so it lives."""
        return oip.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: oip.ServerReadyRequest, context: Context
    ) -> oip.ServerReadyResponse:
        """Ready until it drains."""
        return oip.ServerReadyResponse(ready=self._source.is_ready())

    async def ServerMetadata(
        self, request: oip.ServerMetadataRequest, context: Context
    ) -> oip.ServerMetadataResponse:
        """Name, release, extensions."""
        return oip.ServerMetadataResponse(
            name=NAME, version=self._source.release, extensions=EXTENSIONS
        )

    async def ModelReady(
        self, request: oip.ModelReadyRequest, context: Context
    ) -> oip.ModelReadyResponse:
        """Whether this worker serves the version; NOT_FOUND for names that are not here."""
        try:
            self._source.roster.find_any(asked(context, request.name, request.version))
        except UnavailableError:
            return oip.ModelReadyResponse(ready=False)
        return oip.ModelReadyResponse(ready=True)

    async def ModelMetadata(
        self, request: oip.ModelMetadataRequest, context: Context
    ) -> oip.ModelMetadataResponse:
        """Inputs and outputs."""
        version = self._source.roster.find_any(asked(context, request.name, request.version))
        return grpc_messages.metadata(request.name, version.spec)

    async def ModelInfer(
        self, request: oip.ModelInferRequest, context: Context
    ) -> oip.ModelInferResponse:
        """One inference."""
        source = self._source
        version = source.roster.find(asked(context, request.model_name, request.model_version))
        with version.measured():
            checked = grpc_messages.read(
                version.spec, request, source.max_message_bytes, tenant(context)
            )
            mark = mark_of_context(context, request.ByteSize())
            tab = await there(version.enter(checked, mark))
            with tab:
                outputs = await version.infer(checked, deadline(context), tab)
                source.check_size(sum(array.nbytes for array in outputs.values()))
                answer = grpc_messages.write(version.spec, request, outputs, checked.facts)
                tab.deliver(0, answer.ByteSize())
        if tab.headers():
            await context.send_initial_metadata(tab.headers())
        return answer

    async def ModelStreamInfer(
        self, request_iterator: AsyncIterator[oip.ModelInferRequest], context: Context
    ) -> AsyncIterator[oip.ModelStreamInferResponse]:
        """Several inferences on one stream, answered in order."""
        async for answer in grpcio_stream.answers(self._source, request_iterator, context):
            yield answer

    async def ModelStatistics(
        self, request: oip.ModelStatisticsRequest, context: Context
    ) -> oip.ModelStatisticsResponse:
        """What this worker has counted."""
        question = asked(context, request.name, request.version)
        return oip.ModelStatisticsResponse(
            model_stats=[
                oip.ModelStatistics(**said)
                for said in statistics_report.answer(self._source.roster, question)
            ]
        )

    async def RepositoryIndex(
        self, request: oip.RepositoryIndexRequest, context: Context
    ) -> oip.RepositoryIndexResponse:
        """The registry's answer, not a worker's."""
        raise of_registry("RepositoryIndex")

    async def RepositoryModelLoad(
        self, request: oip.RepositoryModelLoadRequest, context: Context
    ) -> oip.RepositoryModelLoadResponse:
        """The registry's answer, not a worker's."""
        raise of_registry("RepositoryModelLoad")

    async def RepositoryModelUnload(
        self, request: oip.RepositoryModelUnloadRequest, context: Context
    ) -> oip.RepositoryModelUnloadResponse:
        """The registry's answer, not a worker's."""
        raise of_registry("RepositoryModelUnload")
