"""A steady load of unary calls of the demo's digits, from inside a container network, until SIGTERM; then a report.

Each call is sent once, with no retry of ours. Started as a file in the image of the command line, which has all that
it imports.
"""

from __future__ import annotations  # stubs of asyncio exist for the type checker only

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter

import grpc
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

_OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.lb_policy_name", "round_robin"),
]
_DEADLINE = 30.0
BEGUN = "the first call was answered"


async def _one(
    stub: open_inference_pb2_grpc.GRPCInferenceServiceAsyncStub,
    ends: Counter[str],
    took: list[float],
) -> None:
    request = oip.ModelInferRequest(model_name="digits")
    image = request.inputs.add(name="image", datatype="FP32", shape=[1, 64])
    image.contents.fp32_contents.extend([float(number % 17) for number in range(64)])
    begin = time.monotonic()
    key = (("authorization", f"Bearer {os.environ['INFERPLANE_API_KEY']}"),)
    try:
        await stub.ModelInfer(request, metadata=key, timeout=_DEADLINE, wait_for_ready=True)
        ends["OK"] += 1
        if ends["OK"] == 1:
            print(BEGUN, flush=True)
    except grpc.aio.AioRpcError as error:
        ends[f"{error.code().name}: {error.details()}"] += 1
    took.append(time.monotonic() - begin)


async def _load(address: str, rate: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ends: Counter[str] = Counter()
    took: list[float] = []
    begin = time.monotonic()
    async with grpc.aio.insecure_channel(f"dns:///{address}", options=_OPTIONS) as channel:
        stub = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        async with asyncio.TaskGroup() as group:
            sent = 0
            while not stop.is_set():
                group.create_task(_one(stub, ends, took))
                sent += 1
                await asyncio.sleep(max(0.0, begin + sent / rate - time.monotonic()))
    took.sort()
    seconds = time.monotonic() - begin
    report = {"sent": sent, "ends": ends, "seconds": round(seconds, 1)}
    report |= {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "longest": took[-1]}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    asyncio.run(_load(sys.argv[1], float(sys.argv[2])))
