"""What this worker has measured, told to the registry by `SetModelVersionTuning`."""

import grpc
import structlog
from inferplane.registry.v1 import model_pb2, model_service_pb2, model_service_pb2_grpc

from services.rpc.names import VersionName
from services.worker.domain.assignment import Tuning
from services.worker.ports.registry import ConnectionLostError

_log = structlog.get_logger(__name__)

_SECONDS = 5.0  # for one call
_PASSES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class RegistryTunings:
    """TuningStore over ModelService."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = model_service_pb2_grpc.ModelServiceStub(channel)

    async def keep(self, version: VersionName, tuning: Tuning) -> None:
        """Keep it unless another worker's is kept already. Raises ConnectionLostError."""
        found = model_pb2.VersionTuning(
            intra_op_threads=tuning.intra_op_threads,
            instances=tuning.instances,
            max_batch_size=tuning.max_batch_size,
            rows_per_second=tuning.rows_per_second,
            baseline_rows_per_second=tuning.baseline_rows_per_second,
            machine_cpus=tuning.machine_cpus,
        )
        request = model_service_pb2.SetModelVersionTuningRequest(
            name=str(version), tuning=found, only_if_unset=True
        )
        try:
            await self._stub.SetModelVersionTuning(request, timeout=_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in _PASSES:
                raise ConnectionLostError(f"{error.code().name}: {error.details()}") from error
            # The version is gone, or the registry is of another release: it is measured again when it is loaded.
            _log.warning("what was measured is not kept", version=str(version), error=str(error))
