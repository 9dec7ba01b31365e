"""What a user would write in an hour: grpc.aio, the protobuf classes, `session.run` inline; and its floor, an echo.

Run: .venv/bin/python -m benchmarks.naive {naive,echo} unix:/path/to.sock
"""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import sys
from typing import Any

import grpc
import numpy as np
import onnxruntime
import uvloop
from inference import open_inference_pb2 as oip

from benchmarks import mlp
from benchmarks.h2_load import PATH

NAME = "mlp"


def naive() -> grpc.RpcMethodHandler[Any, Any]:
    """Protobuf in, one run, protobuf out."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(mlp.graph(), options, ["CPUExecutionProvider"])

    async def infer(request: oip.ModelInferRequest, _context: object) -> oip.ModelInferResponse:
        tensor = request.inputs[0]
        data = np.frombuffer(request.raw_input_contents[0], np.float32)
        (answer,) = session.run(["probability"], {tensor.name: data.reshape(tensor.shape)})
        response = oip.ModelInferResponse(
            model_name=request.model_name, model_version="1", id=request.id
        )
        response.outputs.add(name="probability", datatype="FP32", shape=answer.shape)
        response.raw_output_contents.append(answer.tobytes())
        return response

    return grpc.unary_unary_rpc_method_handler(
        infer, oip.ModelInferRequest.FromString, oip.ModelInferResponse.SerializeToString
    )


def echo() -> grpc.RpcMethodHandler[Any, Any]:
    """Bytes in, always the same bytes out: what grpc.aio alone costs."""
    answer = mlp.exchanges(NAME, "1", 1)[0].answer[5:]

    async def infer(_request: bytes, _context: object) -> bytes:
        return answer

    return grpc.unary_unary_rpc_method_handler(infer)


async def serve(what: str, address: str) -> None:
    """Until it is killed."""
    service, method = PATH.strip("/").split("/")
    server = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 1000)])
    handler = naive() if what == "naive" else echo()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    server.add_insecure_port(address)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    what, address = sys.argv[1:3]
    # The echo has the faster loop, so that it is a floor; the naive server has what comes with Python.
    (uvloop if what == "echo" else asyncio).run(serve(what, address))
