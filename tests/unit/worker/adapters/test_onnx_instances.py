"""Sessions of several threads on CPUs of their own."""

import os
from pathlib import Path

import numpy as np
import pytest

from services.worker.adapters.onnx_session import OnnxSessionLoader
from services.worker.domain.instance_plan import Instance
from tests.models import good
from tests.unit.worker.specs import spec_of_model, write

CPU = min(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "instance",
    [
        pytest.param(None, id="as settings say"),
        pytest.param(Instance(1, (CPU,)), id="one thread"),
        pytest.param(Instance(3, (CPU,)), id="more threads than CPUs"),
    ],
)
def test_an_instance_has_its_threads(tmp_path: Path, instance: Instance | None) -> None:
    """It computes, with threads and CPUs that the runtime takes."""
    graph = good.affine(2.0)
    folder = write(tmp_path, {"model.onnx": graph})
    loader = OnnxSessionLoader(intra_op_threads=1, execution_providers=["CPUExecutionProvider"])
    session = loader.load(spec_of_model(graph), folder, instance)
    x = np.ones((2, 4), np.float32)
    (answer,) = session.run({"x": x}, ["y"]).values()
    assert answer.shape == (2, 4)
