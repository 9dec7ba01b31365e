"""A worker process serves what is placed, and tells the truth about it."""

import numpy as np
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

from tests.integration.worker.conftest import Home
from tests.integration.worker.worker_process import running
from tests.models import artifact, good

VERSION = "models/affine/versions/1"


async def test_a_placed_version_is_pulled_loaded_and_answers(home: Home) -> None:
    """From placement to answer, with the state reported at each step."""
    await home.registry.put(VERSION, artifact.of_model(good.affine(3.0)))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(VERSION, "READY")
        stub = open_inference_pb2_grpc.GRPCInferenceServiceStub(worker.channel)
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        request = oip.ModelInferRequest(model_name="affine", id="a")
        request.inputs.add(name="x", datatype="FP32", shape=x.shape)
        request.raw_input_contents.append(x.tobytes())
        answer = await stub.ModelInfer(request)
        assert answer.model_version == "1"
        assert (
            np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(2, 4) == 3 * x
        ).all()
        worker.ask_to_stop()
        assert await worker.ended() == 0
    states = [v.state for w in home.registry.reports for v in w.versions]
    assert sorted(set(states)) == sorted(set(states), key=states.index)
