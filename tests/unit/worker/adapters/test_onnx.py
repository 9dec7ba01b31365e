"""ONNX Runtime behind our words: files not opened, models not loaded, runs refused."""

import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError
from services.worker import tensor_probe
from services.worker.adapters import child_probe, probe_order
from services.worker.adapters.child_probe import ChildProbe, ProbeBounds
from services.worker.adapters.onnx_files import check_graph, check_tree
from services.worker.adapters.onnx_session import OnnxSession, OnnxSessionLoader
from services.worker.adapters.probe_order import ProbeOrder
from services.worker.adapters.trial_process import Lines
from services.worker.domain.assignment import (
    BatchAxis,
    PaddedInput,
    RunSettings,
    TrimmedOutput,
    Tuning,
    VersionSpec,
)
from services.worker.domain.datatype import BF16
from services.worker.domain.load_state import LoadError
from services.worker.ports.session import ProbeReport
from tests.models import bad, good, rows
from tests.unit.worker.specs import spec_of_files, spec_of_model, write

LOADER = OnnxSessionLoader(intra_op_threads=1, execution_providers=("CPUExecutionProvider",))


def loaded(folder: Path, graph: bytes) -> OnnxSession:
    write(folder, {"model.onnx": graph})
    return LOADER.load(spec_of_model(graph), folder)


def test_bf16_keeps_all_bit_patterns(tmp_path: Path) -> None:
    """NumPy knows no bfloat16 and the runtime's binding neither: values go in and out as bits."""
    session = loaded(tmp_path, good.identity("BF16"))
    bits = np.arange(1 << 16, dtype=np.uint16)
    y = session.run({"x": bits.view(BF16.dtype)}, ["y"])["y"]
    assert y.dtype == BF16.dtype
    assert (y.view(np.uint16) == bits).all()
    assert session.run({"x": bits[:0].view(BF16.dtype)}, ["y"])["y"].shape == (0,)


def test_read_only_views_are_fed_as_they_are(tmp_path: Path) -> None:
    """Arrays over the message's bytes, also unaligned ones, need no copy of ours."""
    session = loaded(tmp_path, good.identity("FP32"))
    data = b"?" + np.arange(4, dtype=np.float32).tobytes()
    x = np.frombuffer(data, np.float32, offset=1)
    assert session.run({"x": x}, ["y"])["y"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("graph", "feeds", "error"),
    [
        pytest.param(
            good.gather(), {"x": np.array([9], np.int64)}, InvalidArgumentError, id="index"
        ),
        pytest.param(
            good.add(("n", "m")),
            {"a": np.ones((2, 2), np.float32), "b": np.ones((3, 3), np.float32)},
            InvalidArgumentError,
            id="shapes that do not fit",
        ),
        pytest.param(
            bad.hungry(), {"x": np.ones(1, np.float32)}, ResourceExhaustedError, id="memory"
        ),
    ],
)
def test_what_a_run_raises(
    tmp_path: Path, graph: bytes, feeds: dict[str, Any], error: type[Exception]
) -> None:
    """The runtime's errors become ours, with a short text of one line."""
    session = loaded(tmp_path, graph)
    output = "total" if b"total" in graph else "y"
    with pytest.raises(error) as caught:
        session.run(feeds, [output])
    assert "\n" not in str(caught.value)


def test_unknown_providers_are_named_with_those_that_are_there(tmp_path: Path) -> None:
    """A version that wants a GPU says so where there is none."""
    write(tmp_path, {"model.onnx": good.add()})
    loader = OnnxSessionLoader(intra_op_threads=1, execution_providers=("NoSuchProvider",))
    with pytest.raises(LoadError, match=r"NoSuchProvider.*CPUExecutionProvider"):
        loader.load(spec_of_model(good.add()), tmp_path)


def test_why_it_is_not_loaded_tells_nothing_of_this_machine(tmp_path: Path) -> None:
    """The runtime names the file by its whole path; callers of the edge see it inside the artifact."""
    write(tmp_path, {"model.onnx": b"no graph"})
    with pytest.raises(LoadError, match=r"from model\.onnx failed") as refused:
        LOADER.load(spec_of_model(good.add()), tmp_path)
    assert str(tmp_path) not in str(refused.value)


def test_importing_the_runtime_writes_nothing_into_the_home(tmp_path: Path) -> None:
    """Its telemetry would leave a device id and a database there."""
    program = "import services.worker.adapters.onnx_runtime"
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": ""}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    assert list(tmp_path.iterdir()) == []


FILES = {"model.onnx": b"graph", "weights/w.bin": b"data"}


def test_declared_regular_files_pass(tmp_path: Path) -> None:
    """What is declared, and nothing else, is there."""
    check_tree(spec_of_files(FILES), write(tmp_path, FILES))


def _symlink(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to("/etc/passwd")


def _folder_link(folder: Path) -> None:
    (folder / "elsewhere").symlink_to("/etc")


def _hard_link(folder: Path) -> None:
    os.link(folder / "model.onnx", folder.parent / "other name")


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(_symlink, "symlink", id="symlink"),
        pytest.param(_folder_link, "symlink", id="symlink to a folder"),
        pytest.param(_hard_link, "hard link", id="hard link"),
        pytest.param(_fifo, "no regular file", id="pipe"),
        pytest.param(lambda f: (f / "more").write_bytes(b""), "not one of", id="one more file"),
        pytest.param(lambda f: (f / "weights/w.bin").unlink(), "is missing", id="one less"),
        pytest.param(lambda f: (f / "model.onnx").write_bytes(b"x"), "has 1 bytes", id="size"),
    ],
)
def test_anything_else_in_the_folder_is_refused(tmp_path: Path, harm: Any, words: str) -> None:
    """Links could lead to any file of this machine."""
    folder = write(tmp_path / "v", FILES)
    harm(folder)
    with pytest.raises(LoadError, match=words):
        check_tree(spec_of_files(FILES), folder)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", "w.bin\0", "other.bin"], ids=repr
)
def test_external_data_elsewhere_is_refused(tmp_path: Path, location: str) -> None:
    """Only the version's own files may hold a tensor's data."""
    graph = bad.external(location)
    with pytest.raises(LoadError, match="keeps its data at"):
        check_graph(spec_of_model(graph), write(tmp_path, {"model.onnx": graph}))


def test_external_data_inside_a_subgraph_is_found(tmp_path: Path) -> None:
    """A tensor may hide in the body of a loop."""
    import onnx

    model = onnx.load_model_from_string(good.counting())
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    hidden = loop.attribute[0].g.initializer.add(name="w", dims=[1], data_type=1)
    hidden.data_location = onnx.TensorProto.EXTERNAL
    hidden.external_data.add(key="location", value="../../secret")
    graph = model.SerializeToString()
    with pytest.raises(LoadError, match="secret"):
        check_graph(spec_of_model(graph), write(tmp_path, {"model.onnx": graph}))


ORDER = ProbeOrder(
    spec=spec_of_model(good.affine(1.0), **{"w.bin": b"1"}),
    folder=Path("/somewhere"),
    intra_op_threads=3,
    execution_providers=("CPUExecutionProvider",),
    max_batch_size=8,
    memory_bytes=5,
    seconds=1.5,
    tune_seconds=0.5,
)


def test_orders_survive_the_pipe() -> None:
    """The probe process reads what was meant."""
    assert probe_order.from_json(probe_order.to_json(ORDER)) == ORDER
    tuned = dataclasses.replace(ORDER, spec=dataclasses.replace(ORDER.spec, tuning=TUNING))
    assert probe_order.from_json(probe_order.to_json(tuned)) == tuned


TUNING = Tuning(
    intra_op_threads=1,
    instances=2,
    max_batch_size=8,
    rows_per_second=2.5,
    baseline_rows_per_second=1.0,
    machine_cpus=4,
)


def probe(*, memory_bytes: int = 0, seconds: float = 30.0) -> ChildProbe:
    return ChildProbe(
        ProbeBounds(
            intra_op_threads=1,
            execution_providers=("CPUExecutionProvider",),
            max_batch_size=32,
            memory_bytes=memory_bytes,
            seconds=seconds,
            tune_seconds=1.0,
        )
    )


@pytest.mark.parametrize(
    ("graph", "batchable", "words"),
    [
        pytest.param(good.affine(2.0), True, "", id="rows free"),
        pytest.param(good.identity("BYTES"), True, "", id="strings"),
        pytest.param(good.divided("Div"), True, "", id="no zeros: Div"),
        pytest.param(good.divided("Mod"), True, "", id="no zeros: Mod"),
        pytest.param(good.identity("FP32", (2, 2)), False, "free first", id="fixed"),
        pytest.param(good.identity("FP32", ()), False, "free first", id="scalar"),
        pytest.param(good.centred(), False, "differs", id="rows that mix"),
    ],
)
async def test_the_probe_finds_what_may_be_batched(
    tmp_path: Path, graph: bytes, batchable: bool, words: str
) -> None:
    """Two rows at once must give what they give alone."""
    write(tmp_path, {"model.onnx": graph})
    report = await probe().examine(spec_of_model(graph), tmp_path)
    assert report.batchable == batchable
    assert words in report.batching_reason


def spec_with(graph: bytes, settings: RunSettings) -> VersionSpec:
    return dataclasses.replace(spec_of_model(graph), settings=settings)


def examined(folder: Path, graph: bytes, settings: RunSettings) -> ProbeReport:
    """What the probe's program finds, in this process."""
    write(folder, {"model.onnx": graph})
    order = dataclasses.replace(
        ORDER, spec=spec_with(graph, settings), folder=folder, seconds=30, tune_seconds=0
    )
    return tensor_probe.examine(order, Lines(io.BytesIO()))


def test_a_declared_axis_that_fails_the_check_is_a_failed_load(tmp_path: Path) -> None:
    """FIRST: an error. NONE: not even checked."""
    graph = good.centred()
    declared = RunSettings(batch_axis=BatchAxis.FIRST)
    with pytest.raises(LoadError, match=r"first axis counts rows, but output 'y' of a batch of 2"):
        examined(tmp_path, graph, declared)
    report = examined(tmp_path, graph, RunSettings(batch_axis=BatchAxis.NONE))
    assert not report.batchable
    assert "batch_axis NONE" in report.batching_reason


def test_padding_that_changes_answers_is_told_apart(tmp_path: Path) -> None:
    """Requests of equal lengths may share runs, others not; declared as FIRST it is a failed load."""
    graph = rows.embedding(masked=False)
    settings = RunSettings(
        padded_inputs=(PaddedInput("ids", 1), PaddedInput("mask", 1, mask=True)),
        trimmed_outputs=(TrimmedOutput("tokens", 1, "ids", 1),),
    )
    report = examined(tmp_path, graph, settings)
    assert report.batchable
    assert "padded together differs" in report.padding_reason
    first = dataclasses.replace(settings, batch_axis=BatchAxis.FIRST)
    with pytest.raises(LoadError, match="padded together differs"):
        examined(tmp_path, graph, first)


async def test_measuring_ends_in_time_with_a_layout_of_this_machine(tmp_path: Path) -> None:
    """Only where it is wanted; settings that say something are kept to."""
    graph = good.affine(2.0)
    write(tmp_path, {"model.onnx": graph})
    wanted = RunSettings(auto_tune=True, instances=1)
    report = await probe().examine(spec_with(graph, wanted), tmp_path)
    assert report.tuning is not None
    assert report.tuning.instances == 1
    assert report.tuning.max_batch_size > 1
    assert report.tuning.rows_per_second > report.tuning.baseline_rows_per_second > 0
    assert report.tuning.machine_cpus == len(os.sched_getaffinity(0))


async def test_a_probe_that_is_not_done_in_time_is_ended(tmp_path: Path) -> None:
    """The reason names the stage and the setting."""
    write(tmp_path, {"model.onnx": bad.endless()})
    with pytest.raises(LoadError, match=r"answering its example after 2 s.*LOAD_TIMEOUT_SECONDS"):
        await probe(seconds=2).examine(spec_of_model(bad.endless()), tmp_path)


async def test_a_probe_without_memory_says_so(tmp_path: Path) -> None:
    """The bound is on the child; what it lacks is told as the reason, also where the runtime crashes of it."""
    write(tmp_path, {"model.onnx": good.add()})
    with pytest.raises(LoadError, match=r"memory|LOAD_MEMORY_BYTES"):
        await probe(memory_bytes=1 << 20).examine(spec_of_model(good.add()), tmp_path)


async def test_a_probe_that_crashes_is_told_as_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that aborts takes nobody with it; the reason names the signal and the stage."""
    monkeypatch.setattr(child_probe, "_MODULE", "tests.unit.worker.adapters.crashing_probe")
    with pytest.raises(LoadError, match=r"crashed a trial process \(SIGABRT\) while loading"):
        await probe().examine(spec_of_model(good.add()), tmp_path)
