"""Requests against a signature: sizes before data, every violation at once."""

from typing import Any

import numpy as np
import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.infer_request import GivenTensor, read_inputs, read_outputs
from services.worker.domain.raw_contents import RawContents
from services.worker.domain.signature import Signature, spec_of

SIGNATURE = Signature(
    (spec_of("x", "FP32", (-1, 2)), spec_of("k", "INT64", (1,))),
    (spec_of("y", "FP32", (-1, 2)), spec_of("z", "FP32", (-1,))),
)
MOST = 1 << 20


def x(
    *shape: int, datatype: str = "FP32", name: str = "x", data: bytes | None = None
) -> GivenTensor:
    size = 4 * int(np.prod(shape)) if data is None else 0
    return GivenTensor(name, datatype, shape, RawContents(data or bytes(max(0, size)), "raw"))


def k() -> GivenTensor:
    return GivenTensor("k", "INT64", (1,), RawContents(bytes(8), "raw"))


def fields(*given: GivenTensor) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as caught:
        read_inputs(SIGNATURE, given, MOST)
    return {v.field: v.description for v in caught.value.violations}


def test_inputs_come_in_the_models_order() -> None:
    """The client's order does not matter."""
    arrays = read_inputs(SIGNATURE, [k(), x(3, 2)], MOST)
    assert list(arrays) == ["x", "k"]
    assert arrays["x"].shape == (3, 2)


def test_no_rows_are_rows_where_the_dimension_is_free() -> None:
    """A zero-size request is valid where the size is free."""
    assert read_inputs(SIGNATURE, [x(0, 2), k()], MOST)["x"].shape == (0, 2)


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        pytest.param(
            x(1, 2, datatype="FP64"), "inputs[0].datatype", "allowed: FP32", id="datatype"
        ),
        pytest.param(
            x(1, 2, datatype="FLOAT"), "inputs[0].datatype", "'FLOAT' given", id="no datatype"
        ),
        pytest.param(x(2), "inputs[0].shape", "1 dimensions given", id="rank"),
        pytest.param(x(), "inputs[0].shape", "0 dimensions given", id="no shape"),
        pytest.param(x(1, 3), "inputs[0].shape", "[1, 3] given; allowed: [-1, 2]", id="fixed dim"),
        pytest.param(x(-1, 2), "inputs[0].shape", "no negative dimension", id="negative"),
        pytest.param(x(1 << 62, 2, data=b""), "inputs[0].shape", "an overflow", id="overflow"),
        pytest.param(
            x(1 << 62, 1 << 62, data=b""), "inputs[0].shape", "an overflow", id="product of 2^124"
        ),
        pytest.param(x(*([1] * 100)), "inputs[0].shape", "100 dimensions given", id="100 dims"),
        pytest.param(x(1, 2, name="X"), "inputs[0].name", "'X' is not an input", id="unknown"),
        pytest.param(x(1, 2, name="x" * 5000), "inputs[0].name", "5000 characters", id="long name"),
        pytest.param(x(1, 2, data=b"123"), "raw", "3 bytes given; allowed: 8", id="length"),
    ],
)
def test_refusals(given: GivenTensor, field: str, words: str) -> None:
    """The field is named with what was given and what is allowed."""
    found = fields(given, k())
    assert words in found[field]


def test_a_zero_does_not_hide_an_overflow() -> None:
    """[0, 2^40] has no elements, but a model that drops the first dimension would allocate 2^40."""
    signature = Signature((spec_of("x", "FP32", (-1, -1)),), ())
    with pytest.raises(InvalidArgumentError, match="overflow"):
        read_inputs(signature, [x(0, 1 << 40, data=b"")], MOST)


def test_everything_wrong_is_said_at_once() -> None:
    """One answer names the missing input, the extra one, the doubled one and the wrong shape."""
    found = fields(x(1, 9, data=b""), x(1, 2), x(1, 1, name="extra"))
    assert set(found) == {"inputs[0].shape", "inputs[1].name", "inputs[2].name", "inputs"}
    assert "twice" in found["inputs[1].name"]
    assert "'k' INT64 [1] is missing" in found["inputs"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], ("y", "z"), id="all if none is named"),
        pytest.param(["z"], ("z",), id="one"),
        pytest.param(["z", "y"], ("z", "y"), id="in the client's order"),
    ],
)
def test_outputs(names: list[str], expected: tuple[str, ...]) -> None:
    """Those named, or all."""
    assert read_outputs(SIGNATURE, names) == expected


@pytest.mark.parametrize("names", [["y", "q"], ["y", "y"]], ids=["unknown", "twice"])
def test_wrong_outputs(names: list[Any]) -> None:
    """Unknown and repeated outputs are refused by position."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_outputs(SIGNATURE, names)
    assert caught.value.violations[0].field == "outputs[1].name"
