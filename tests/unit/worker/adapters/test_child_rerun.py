"""Requests in a child that the model may crash."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.rpc.errors import InferplaneError, InvalidArgumentError, UnavailableError
from services.worker.adapters import array_text, child_rerun
from services.worker.adapters.child_probe import ProbeBounds
from services.worker.adapters.child_rerun import ChildReruns
from services.worker.domain.batch import Answer
from services.worker.domain.datatype import BY_NAME
from services.worker.ports.flights import Rerun
from tests.models import good
from tests.unit.worker.specs import spec_of_model, write

LEAST = np.iinfo(np.int64).min
BOUNDS = ProbeBounds(
    intra_op_threads=1,
    execution_providers=("CPUExecutionProvider",),
    max_batch_size=32,
    memory_bytes=0,
    seconds=30.0,
    tune_seconds=1.0,
)


async def test_the_one_that_crashes_is_found(tmp_path: Path) -> None:
    """-2⁶³ / -1 ends the process by SIGFPE; those before and after it are answered, what is refused is refused."""
    graph = good.divided("Div")
    write(tmp_path, {"model.onnx": graph})
    pairs = [(9, 2), (LEAST, -1), (1, 0), (8, 2)]
    requests = [
        Rerun({"a": np.array([a], np.int64), "b": np.array([b], np.int64)}, ("y",))
        for a, b in pairs
    ]
    told: dict[int, Answer] = {}
    await ChildReruns(BOUNDS).compute(
        spec_of_model(graph), tmp_path, requests, lambda index, answer: told.update({index: answer})
    )
    assert sorted(told) == [0, 1, 2, 3]
    crashed, refused = told[1], told[2]
    assert isinstance(crashed, InvalidArgumentError)
    assert crashed.reason == "MODEL_CRASHED"
    assert "SIGFPE" in crashed.message
    assert isinstance(refused, InvalidArgumentError)
    assert refused.reason == "MODEL_REFUSED_INPUTS"
    answers = [told[index] for index in (0, 3)]
    assert [int(a["y"][0]) for a in answers if not isinstance(a, InferplaneError)] == [4, 4]


async def test_who_was_computed_when_the_time_was_over_is_not_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child may have had many to compute; those behind that one get a child of their own."""
    monkeypatch.setattr(child_rerun, "_MODULE", "tests.unit.worker.adapters.endless_rerun")
    monkeypatch.chdir(Path(__file__).parents[4])
    told: dict[int, Answer] = {}
    requests = [Rerun({"x": np.ones(1, np.float32)}, ("y",))] * 2
    await ChildReruns(replace(BOUNDS, seconds=1.0)).compute(
        spec_of_model(good.counting()),
        tmp_path,
        requests,
        lambda index, answer: told.update({index: answer}),
    )
    assert [type(told[index]) for index in (0, 1)] == [UnavailableError, UnavailableError]


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_arrays_survive_the_pipe(name: str) -> None:
    """Each datatype, also without elements or dimensions."""
    dtype = BY_NAME[name].dtype
    values = ["a", "ü"] if name == "BYTES" else [0, 1]
    for array in (np.array([values] * 3, dtype), np.array([], dtype), np.array(values[1], dtype)):
        (back,) = array_text.read(array_text.written({"x": array})).values()
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert (back == array).all()
