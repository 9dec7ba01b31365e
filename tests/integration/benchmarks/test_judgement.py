"""What the comparison with other servers takes for right, and that it would notice a wrong answer."""

from pathlib import Path

import numpy as np
import pytest
from inference import open_inference_pb2 as oip

from benchmarks.serving import workload
from benchmarks.serving.dialect import JSON, OIP, RAW
from benchmarks.serving.workload import Workload


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    folder: Path = tmp_path_factory.mktemp("models")
    return workload.make("mlp", folder)


def test_right_answers_pass_and_others_are_flagged(mlp: Workload) -> None:
    """Each request's own answer passes; held against its neighbour's, every one is wrong."""
    answers = list(enumerate(mlp.answers))
    assert mlp.wrong(answers) == 0
    assert mlp.wrong(answers, shift=1) == len(answers)


def test_an_answer_of_another_size_is_wrong(mlp: Workload) -> None:
    """Two values are no answer where one was asked for, whatever they are."""
    assert not mlp.is_right(0, np.repeat(mlp.answers[0], 2))


def test_models_and_requests_are_the_same_each_time(mlp: Workload, tmp_path: Path) -> None:
    """Two makings agree bit for bit, so two runs can be compared."""
    again = workload.make("mlp", tmp_path)
    assert again.file.read_bytes() == mlp.file.read_bytes()
    for one, other in zip(mlp.answers, again.answers, strict=True):
        assert np.array_equal(one, other)


def test_each_way_of_speaking_carries_the_same_row(mlp: Workload) -> None:
    """The protocol's message, raw bytes and JSON hold the same 30 values."""
    row = mlp.requests[5]["features"].ravel()
    message = oip.ModelInferRequest.FromString(OIP.encode(mlp, 5))
    assert np.array_equal(np.frombuffer(message.raw_input_contents[0], np.float32), row)
    assert np.array_equal(np.frombuffer(RAW.encode(mlp, 5), np.float32), row)
    assert JSON.decode(b"[0.5]") == np.float32(0.5)
    assert b"features" in JSON.encode(mlp, 5)
