"""Ray Serve: the protocol's own servicer as gRPC ingress, `serve.batch` behind it."""

from __future__ import annotations

import signal
from typing import Any

import bare_models
import numpy as np
import ray
from inference import open_inference_pb2 as oip
from ray import serve
from ray._private import services
from ray.serve.config import HTTPOptions, gRPCOptions

GIVEN = bare_models.settings()
DTYPES = {"FP32": np.float32, "INT64": np.int64}
SERVICER = "inference.open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server"


def batched(model: str) -> Any:
    """`serve.batch` with this model's settings."""
    return serve.batch(
        max_batch_size=GIVEN.most_rows(model), batch_wait_timeout_s=GIVEN.window_ms / 1000
    )


@serve.deployment(
    num_replicas=GIVEN.workers, max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0}
)
class Served:
    """Both models in each replica."""

    def __init__(self) -> None:
        self._sessions = {name: bare_models.session(GIVEN, name) for name in bare_models.ROW}

    async def ModelInfer(self, request: oip.ModelInferRequest) -> oip.ModelInferResponse:
        row = {
            tensor.name: np.frombuffer(raw, DTYPES[tensor.datatype])
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        name = request.model_name
        if GIVEN.most_rows(name) == 1:
            output = self._run(name, [row])[0]
        else:
            output = await (self._mlp(row) if name == "mlp" else self._minilm(row))
        answer = oip.ModelInferResponse(model_name=name, model_version="1", id=request.id)
        answer.outputs.add(
            name=bare_models.OUTPUTS[name][0], datatype="FP32", shape=[1, output.size]
        )
        answer.raw_output_contents.append(output.tobytes())
        return answer

    @batched("mlp")
    async def _mlp(self, rows: list[Any]) -> list[Any]:
        return list(self._run("mlp", rows))

    @batched("minilm")
    async def _minilm(self, rows: list[Any]) -> list[Any]:
        return list(self._run("minilm", rows))

    def _run(self, name: str, rows: list[Any]) -> Any:
        return bare_models.run(self._sessions[name], name, bare_models.join(name, rows))


if __name__ == "__main__":
    # It would take the machine's address in place of loopback, and listen there.
    services.resolve_ip_for_localhost = lambda host: host
    services.get_node_ip_address = lambda *_: "127.0.0.1"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=bare_models.here(),
        runtime_env={"worker_process_setup_hook": "ray_on_loopback.listen"},
    )
    serve.start(
        http_options=HTTPOptions(host="127.0.0.1", port=bare_models.free_port()),
        grpc_options=gRPCOptions(port=GIVEN.port, grpc_servicer_functions=[SERVICER]),
    )
    application = Served.bind()  # type: ignore[attr-defined] # the decorator makes a deployment
    serve.run(application, route_prefix="/")
    signal.pause()
