"""What the check at load finds of real models: which may share a run, and in which words it says why not."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from services.worker.adapters.onnx_runtime import onnxruntime
from services.worker.adapters.onnx_session import OnnxSession
from services.worker.domain.assignment import PaddedInput, RunSettings, TrimmedOutput
from services.worker.domain.batch_check import BatchCheck, CheckBounds, Verdict
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import Signature
from tests.models import good, rows
from tests.unit.worker.specs import spec_of_model

Arrays = Mapping[str, Any]
PLAIN = RunSettings()


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def computing(graph: bytes, signature: Signature) -> Any:
    session = OnnxSession(onnxruntime.InferenceSession(graph), signature)
    names = [spec.name for spec in signature.outputs]
    return lambda feeds: session.run(feeds, names)


def checked(
    graph: bytes,
    settings: RunSettings = PLAIN,
    *,
    max_rows: int = 32,
    signature: Signature | None = None,
) -> Verdict:
    """The verdict on a model."""
    declared = signature or spec_of_model(graph).signature
    bounds = CheckBounds(max_rows=max_rows, seconds=10, clock=Clock())
    check = BatchCheck(declared, computing(graph, declared), bounds)
    return check.verdict(settings.padded_inputs, Padding.of(declared, settings))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(good.affine(2.0), id="two outputs"),
        pytest.param(good.identity("BYTES"), id="strings"),
        pytest.param(good.identity("BOOL"), id="booleans"),
        pytest.param(good.identity("FP16"), id="half"),
        pytest.param(good.identity("BF16"), id="bfloat"),
        pytest.param(good.identity("FP64", ("n", "m", 3)), id="free inner dimension"),
        pytest.param(good.gather(), id="indices up to 3"),
        pytest.param(good.divided("Div"), id="refuses zeros"),
        pytest.param(good.reciprocal(), id="infinite at zero"),
        pytest.param(rows.normalised(1), id="normalises each row"),
        pytest.param(rows.embedding(masked=True), id="tokens"),
    ],
)
def test_independent_rows_may_share_a_run(graph: bytes) -> None:
    """Two, three and all rows give what each gives alone."""
    verdict = checked(graph)
    assert verdict == Verdict(sizes=(2, 3, 32))


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        pytest.param(
            rows.running_sum(),
            "output 'y' of a batch of 2 differs from that of single runs: row 1 at [1] is",
            id="a row and those before it",
        ),
        pytest.param(rows.normalised(0), "output 'y' of a batch of 2 differs", id="normalises"),
        pytest.param(good.centred(), "output 'y' of a batch of 2 differs", id="mean over rows"),
        pytest.param(
            rows.sequence_softmax(), "row 0 is 1 alone, 0.", id="a sequence, where 1 is all"
        ),
        pytest.param(rows.total(), "output 'y' of 2 rows has shape [1]", id="one row for all"),
        pytest.param(
            rows.crowded(20), "of a batch of 32 differs", id="only many rows make a difference"
        ),
        pytest.param(rows.logarithm(), "of a batch of 2 differs", id="needs positive numbers"),
        pytest.param(rows.random(), "differs between two runs of the same row", id="random"),
        pytest.param(
            good.identity("FP32", (8, 30)),
            "input 'x' FP32 [8, 30] has no free first dimension: a request is one run",
            id="fixed batch",
        ),
        pytest.param(good.identity("FP32", ()), "no free first dimension", id="scalar"),
    ],
)
def test_what_depends_on_its_company_is_found(graph: bytes, words: str) -> None:
    """The reason names output, row, and size of the batch."""
    assert words in checked(graph).off_reason


def test_the_difference_is_told_with_what_is_allowed() -> None:
    """Both values, their distance, the bound."""
    reason = checked(rows.running_sum()).off_reason
    head, _, bound = reason.partition("; allowed ")
    assert "alone" in head
    assert "together, a difference of" in head
    assert 0 < float(bound) < 0.01


def test_a_slow_model_is_compared_on_fewer_rows() -> None:
    """After its share of the time no larger batch is begun; two rows always are."""
    graph = good.affine(2.0)
    signature = spec_of_model(graph).signature
    run, clock, seen = computing(graph, signature), Clock(), []

    def slow(feeds: Arrays) -> Any:
        seen.append(len(feeds["x"]))
        clock.now += 1.0 * len(feeds["x"])
        return run(feeds)

    bounds = CheckBounds(max_rows=64, seconds=30, clock=clock)
    verdict = BatchCheck(signature, slow, bounds).verdict((), None)
    assert verdict.off_reason == ""
    assert verdict.sizes == (2, 3, 8)
    assert clock.now < 40
    bounds = CheckBounds(max_rows=64, seconds=0, clock=clock)
    assert BatchCheck(signature, slow, bounds).verdict((), None).sizes == (2,)


def test_declared_shapes_that_lie_are_told() -> None:
    """Rows that are declared one and come as many are batched, since the check shows it, with a warning."""
    graph = good.affine(2.0)
    true = spec_of_model(graph).signature
    lying = Signature(
        true.inputs,
        tuple(dataclasses.replace(spec, shape=(1, 4)) for spec in true.outputs[:1])
        + true.outputs[1:],
    )
    verdict = checked(graph, signature=lying)
    assert verdict.off_reason == ""
    assert verdict.warnings == ("output 'y' FP32 [1, 4] has shape [2, 4] in an answer",)


PADDED = RunSettings(
    padded_inputs=(PaddedInput("ids", 1), PaddedInput("mask", 1, mask=True)),
    trimmed_outputs=(TrimmedOutput("tokens", 1, "ids", 1),),
)


def test_padding_that_is_masked_passes() -> None:
    """Requests of lengths 3, 5 and 9 together give what each gives alone, cut to its length."""
    assert checked(rows.embedding(masked=True), PADDED) == Verdict(sizes=(2, 3, 32))


def test_padding_that_is_not_masked_is_found() -> None:
    """Only requests of equal lengths may share runs then."""
    verdict = checked(rows.embedding(masked=False), PADDED)
    assert verdict.off_reason == ""
    assert verdict.padding_reason.startswith(
        "output 'y' of requests of lengths 3, 5, 9 padded together differs from that of each alone:"
        " request 0, row 0 at ["
    )


def test_an_axis_that_is_not_declared_is_found() -> None:
    """Requests can't be padded together if only some of what grows with their length is; the reason names the rest."""
    settings = RunSettings(padded_inputs=PADDED.padded_inputs[:1])
    verdict = checked(rows.embedding(masked=True), settings)
    assert verdict.off_reason == ""
    assert (
        verdict.padding_reason == "an axis of any size is not among padded_inputs: axis 1 of 'mask'"
    )


def test_an_output_that_is_not_cut_is_found() -> None:
    """The reason says which setting is missing."""
    settings = dataclasses.replace(PADDED, trimmed_outputs=())
    reason = checked(rows.embedding(masked=True), settings).padding_reason
    assert "output 'tokens'" in reason
    assert "[1, 3, 3] alone, [1, 9, 3] together (settings.trimmed_outputs" in reason


def test_small_batches_are_not_padded_unchecked() -> None:
    """What cannot be compared is not done."""
    assert (
        "could not be checked"
        in checked(rows.embedding(masked=True), PADDED, max_rows=2).padding_reason
    )


def test_rows_are_the_same_whatever_is_around_them() -> None:
    """Row 3 of a batch is row 3 alone: otherwise nothing would be compared."""
    from services.worker.domain import varied_inputs

    signature = spec_of_model(rows.embedding(masked=True)).signature
    variation = varied_inputs.Variation(many=frozenset({"ids"}))
    batch = varied_inputs.rows_of(signature, variation, 0, 8)
    made: Sequence[Arrays] = [varied_inputs.rows_of(signature, variation, n) for n in range(8)]
    for n, row in enumerate(made):
        assert all((batch[name][n] == row[name][0]).all() for name in batch)
    ids = [row["ids"].tobytes() for row in made]
    assert len(set(ids)) == len(ids)
