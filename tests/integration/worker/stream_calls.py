"""Calls of ModelStreamInfer, and models for them: a plain one and one with state."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from inference import open_inference_pb2 as oip
from inferplane.registry.v1 import model_pb2

from tests.integration.worker.oip_client import Client, request
from tests.integration.worker.registry_stand_in import Registry
from tests.integration.worker.worker_process import WorkerProcess
from tests.models import artifact, good

PLAIN = "models/m/versions/1"
SUM = "models/sum/versions/1"
X = np.ones((1, 2), np.float32)
SEQUENCE = model_pb2.SequenceSettings(
    states=[model_pb2.SequenceSettings.State(input="state", output="state_after")]
)


async def put_models(registry: Registry) -> None:
    """Place both."""
    await registry.put(PLAIN, artifact.of_model(good.affine(2.0, 2)))
    settings = model_pb2.VersionSettings(sequence=SEQUENCE)
    await registry.put(SUM, artifact.of_model(good.running_sum()), settings)


def asked(number: int, model: str = "m", **parameters: Any) -> oip.ModelInferRequest:
    """Request `number`, whose input is that number."""
    message = request(model, x=number * X)
    message.id = str(number)
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(message.parameters[name], kind, value)
    return message


def of_sequence(number: int, sequence: int | str, *ends: str) -> oip.ModelInferRequest:
    """A request of the model with state; `ends`: "start", "end"."""
    flags = {f"sequence_{end}": True for end in ends}
    return asked(number, "sum", sequence_id=sequence, **flags)


def open_stream(worker: WorkerProcess, *metadata: tuple[str, str]) -> Any:
    return Client(worker.channel).oip.ModelStreamInfer(timeout=30, metadata=metadata)


async def answers(
    stream: Any, requests: Sequence[oip.ModelInferRequest]
) -> list[oip.ModelStreamInferResponse]:
    """Send everything, end, and read everything."""

    async def send() -> None:
        for message in requests:
            await stream.write(message)
        await stream.done_writing()

    sending = asyncio.create_task(send())
    found = [answer async for answer in stream]
    await sending
    return found
