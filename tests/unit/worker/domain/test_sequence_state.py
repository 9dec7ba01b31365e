"""Which tensors are state, and what a state may be."""

import numpy as np
import pytest

from services.rpc.errors import InternalError, InvalidArgumentError
from services.worker.domain.assignment import SequenceState
from services.worker.domain.load_state import LoadError
from services.worker.domain.sequence_state import StatePlan, size_of
from services.worker.domain.signature import Signature, TensorSpec, spec_of

X, TOTAL = spec_of("x", "FP32", (-1, 2)), spec_of("total", "FP32", (-1, 2))


def signature(state: TensorSpec, after: TensorSpec) -> Signature:
    return Signature((X, state), (TOTAL, after))


def plan(
    state: tuple[str, tuple[int, ...]] = ("FP32", (-1, 3)),
    after: tuple[str, tuple[int, ...]] | None = None,
) -> StatePlan:
    whole = signature(spec_of("state", *state), spec_of("after", *(after or state)))
    return StatePlan.of(whole, (SequenceState("state", "after"),))


def test_state_is_hidden_and_begins_with_zeros() -> None:
    """Callers see the other tensors; a free first dimension is one row."""
    made = plan()
    assert made.seen == Signature((X,), (TOTAL,))
    assert made.first["state"].tolist() == [[0.0, 0.0, 0.0]]
    assert made.outputs(("total",)) == ("total", "after")
    given = {"x": np.ones((1, 2), np.float32)}
    assert list(made.feeds(given, made.first)) == ["x", "state"]


def test_strings_begin_empty() -> None:
    """BYTES are empty texts."""
    made = plan(("BYTES", (2,)))
    assert made.first["state"].tolist() == ["", ""]
    assert not made.one_row
    assert size_of({"state": np.array(["ab", "c"], dtype=object)}) == 3 + 2 * 4


@pytest.mark.parametrize(
    ("state", "after", "words"),
    [
        pytest.param(("FP32", (-1, -1)), ("FP32", (-1, 3)), "axis 1", id="free-dimension"),
        pytest.param(("FP32", (-1, 3)), ("FP64", (-1, 3)), "does not fit", id="other-datatype"),
        pytest.param(("FP32", (-1, 3)), ("FP32", (-1, 4)), "does not fit", id="other-size"),
        pytest.param(("FP32", (-1, 3)), ("FP32", (3,)), "does not fit", id="other-rank"),
    ],
)
def test_what_is_no_state_does_not_load(
    state: tuple[str, tuple[int, ...]], after: tuple[str, tuple[int, ...]], words: str
) -> None:
    """The reason names the tensor."""
    with pytest.raises(LoadError, match=r"'(state|after)'") as caught:
        plan(state, after)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("states", "words"),
    [
        pytest.param((("nobody", "after"),), "no input", id="no-such-input"),
        pytest.param((("state", "nobody"),), "no output", id="no-such-output"),
        pytest.param((("state", "after"), ("state", "after")), "twice", id="twice"),
    ],
)
def test_names_must_be_the_models(states: tuple[tuple[str, str], ...], words: str) -> None:
    """Each state once, and both of its tensors are there."""
    whole = signature(spec_of("state", "FP32", (-1, 3)), spec_of("after", "FP32", (-1, 3)))
    with pytest.raises(LoadError, match=words):
        StatePlan.of(whole, tuple(SequenceState(*names) for names in states))


def test_a_request_is_one_row() -> None:
    """Where the state has a row, so has the request."""
    with pytest.raises(InvalidArgumentError, match="2 rows"):
        plan().check_rows({"x": np.ones((2, 2), np.float32)})
    plan(("FP32", (3,))).check_rows({"x": np.ones((2, 2), np.float32)})


def test_the_state_after_a_run_is_a_copy_of_the_right_shape() -> None:
    """It keeps no batch alive; a model that gives another shape is told."""
    batch = np.arange(12, dtype=np.float32).reshape(4, 3)
    state = plan().following({"after": batch[1:2]})
    assert state["state"].base is None
    batch[:] = 0
    assert state["state"].tolist() == [[3.0, 4.0, 5.0]]
    with pytest.raises(InternalError, match=r"\[2, 3\]"):
        plan().following({"after": batch[1:3]})
