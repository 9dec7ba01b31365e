"""The arena that all sessions share: bounded, and given back."""

import sys
from pathlib import Path

import numpy as np
import pytest

from services.rpc.errors import ResourceExhaustedError
from services.worker.adapters.onnx_session import OnnxSession, OnnxSessionLoader
from services.worker.adapters.runtime_memory import RuntimeMemory
from services.worker.domain.load_state import LoadError
from tests.models.wide import WIDTH, steps
from tests.unit.worker.specs import spec_of_model, write

MIB = 2**20


def loaded(folder: Path, memory: RuntimeMemory) -> OnnxSession:
    graph = steps()
    write(folder, {"model.onnx": graph})
    loader = OnnxSessionLoader(
        intra_op_threads=1, execution_providers=("CPUExecutionProvider",), memory=memory
    )
    return loader.load(spec_of_model(graph), folder)


def feeds(length: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((1, length, WIDTH), np.float32)}


def test_a_run_beyond_the_bound_is_refused_and_the_next_one_answered(tmp_path: Path) -> None:
    """The bound is the sum of what runs hold: 64 MiB here, the second run wants 80."""
    memory = RuntimeMemory(64 * MIB)
    session = loaded(tmp_path, memory)
    expected = session.run(feeds(100), ["y"])["y"]
    with pytest.raises(ResourceExhaustedError) as caught:
        session.run(feeds(20_000), ["y"])
    assert caught.value.reason == "OUT_OF_MEMORY"
    assert session.run(feeds(100), ["y"])["y"] == pytest.approx(expected)
    assert memory.is_bounded()


def test_weights_that_leave_no_bound_are_told(tmp_path: Path) -> None:
    """16 MiB of weights where 1 MiB is allowed: the runtime would bound nothing from then on."""
    memory = RuntimeMemory(MIB)
    assert memory.is_bounded()
    with pytest.raises(LoadError, match="INFERPLANE_RUN_MEMORY_BYTES"):
        loaded(tmp_path, memory)


def test_without_a_limit_nothing_is_bounded(tmp_path: Path) -> None:
    """Zero is none, and models load."""
    memory = RuntimeMemory(0)
    assert loaded(tmp_path, memory).run(feeds(20_000), ["y"])["y"].shape == (1, 1)
    assert not memory.is_bounded()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system doesn't say")
def test_release_gives_back_what_a_large_run_took(tmp_path: Path) -> None:
    """A run that takes 80 MiB leaves less than a fifth of it."""
    memory = RuntimeMemory(0)
    session = loaded(tmp_path, memory)
    session.run(feeds(1), ["y"])
    memory.release()
    before = memory.resident()
    session.run(feeds(20_000), ["y"])
    assert memory.resident() - before > 64 * MIB
    memory.release()
    assert memory.resident() - before < 16 * MIB


def test_models_that_come_and_go_are_noticed(tmp_path: Path) -> None:
    """Also one that came and went between two looks."""
    memory = RuntimeMemory(0)
    session = loaded(tmp_path, memory)
    assert memory.turnover() == 1
    del session
    assert memory.turnover() == 2
