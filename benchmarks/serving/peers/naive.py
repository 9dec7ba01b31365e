"""What one writes in an afternoon: grpc.aio, the protocol's messages, a session run in the handler."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import bare_models
import grpc
import numpy as np
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

DTYPES = {"FP32": np.float32, "INT64": np.int64}


class Naive(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Each call is computed alone, where it arrives."""

    def __init__(self, given: bare_models.Settings) -> None:
        self._sessions = {name: bare_models.session(given, name) for name in bare_models.ROW}

    async def ModelInfer(self, request: oip.ModelInferRequest, _: Any) -> oip.ModelInferResponse:
        feeds = {
            tensor.name: np.frombuffer(raw, DTYPES[tensor.datatype]).reshape(tuple(tensor.shape))
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        name = request.model_name
        output = bare_models.run(self._sessions[name], name, feeds)
        answer = oip.ModelInferResponse(model_name=name, model_version="1", id=request.id)
        answer.outputs.add(name=bare_models.OUTPUTS[name][0], datatype="FP32", shape=output.shape)
        answer.raw_output_contents.append(output.tobytes())
        return answer


async def serve(given: bare_models.Settings) -> None:
    """Until the process is ended."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
    open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
        Naive(given),  # type: ignore[abstract] # the benchmark calls no other method
        server,
    )
    server.add_insecure_port(f"127.0.0.1:{given.port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    settings = bare_models.settings()
    for _ in range(settings.workers - 1):
        if not os.fork():
            break
    asyncio.run(serve(settings))
