"""The example that a version answers before it takes calls."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.example import check_answer
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import Signature, spec_of

Arrays = Mapping[str, Any]


def signature(x: tuple[int, ...], y: tuple[int, ...], datatype: str = "FP32") -> Signature:
    return Signature((spec_of("x", datatype, x),), (spec_of("y", "FP32", y),))


def test_zeros_then_ones_then_larger_sizes() -> None:
    """What is refused is tried otherwise, in this order, until something is answered."""
    asked = []

    def run(feeds: Arrays) -> Arrays:
        asked.append((feeds["x"].shape, float(feeds["x"].flat[0])))
        if feeds["x"].shape[2] < 16:
            raise InvalidArgumentError("too small")
        return {"y": np.zeros((1, 3), np.float32)}

    assert check_answer(signature((-1, 3, -1, -1), (-1, 3)), run) == ()
    assert asked == [((1, 3, 1, 1), 0), ((1, 3, 1, 1), 1), ((1, 3, 16, 16), 0)]


def test_what_is_always_refused_fails_with_the_first_reason() -> None:
    """Zeros of size 1 are what people expect to work."""
    reasons = iter("abcdefgh")

    def run(feeds: Arrays) -> Arrays:
        raise InvalidArgumentError(f"reason {next(reasons)}")

    with pytest.raises(LoadError, match="the example failed: reason a"):
        check_answer(signature((-1, -1), (-1,)), run)


@pytest.mark.parametrize(
    ("declared", "actual", "told"),
    [
        pytest.param((-1, 3), (1, 3), False, id="as declared"),
        pytest.param((), (1, 3), False, id="nothing declared"),
        pytest.param((-1, 4), (1, 3), True, id="another size"),
        pytest.param((-1,), (1, 3), True, id="another rank"),
    ],
)
def test_shapes_that_lie_are_told(
    declared: tuple[int, ...], actual: tuple[int, ...], told: bool
) -> None:
    """Answers have their own shapes, so that calls can be answered all the same."""
    lies = check_answer(signature((-1, 2), declared), lambda _: {"y": np.zeros(actual, np.float32)})
    expected = (f"output 'y' FP32 {list(declared)} has shape {list(actual)} in an answer",)
    assert lies == (expected if told else ())


def test_another_datatype_is_fatal() -> None:
    """Clients read raw bytes by the datatype they were told."""
    with pytest.raises(LoadError, match="float64 in its answer"):
        check_answer(signature((-1,), (-1,)), lambda _: {"y": np.zeros(1)})
