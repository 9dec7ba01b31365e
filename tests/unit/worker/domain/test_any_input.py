"""Any bytes whatever: decoders answer with an array or with our error, and never with another."""

import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError
from services.worker.domain.contents import ContentsError, Wanted
from services.worker.domain.datatype import BY_NAME
from services.worker.domain.infer_request import GivenTensor, read_inputs
from services.worker.domain.json_contents import JsonContents
from services.worker.domain.raw_contents import RawContents, to_raw
from services.worker.domain.rest_request import decompress, parse
from services.worker.domain.signature import Signature, spec_of

EXAMPLES = settings(max_examples=int(os.environ.get("EXAMPLES", "200")), deadline=None)
DATATYPES = st.sampled_from(sorted(BY_NAME))
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@EXAMPLES
@given(DATATYPES, SHAPES, st.binary(max_size=80))
def test_raw(datatype: str, shape: tuple[int, ...], data: bytes) -> None:
    """What is accepted comes back as the same bytes."""
    try:
        array = RawContents(data, "f").array(Wanted(BY_NAME[datatype], shape, math.prod(shape)))
    except ContentsError:
        return
    assert array.shape == shape
    assert to_raw(array) == data


@EXAMPLES
@given(DATATYPES, SHAPES, JSON)
def test_json(datatype: str, shape: tuple[int, ...], data: Any) -> None:
    """What is accepted has the shape and datatype that were wanted."""
    wanted = Wanted(BY_NAME[datatype], shape, math.prod(shape))
    try:
        array = JsonContents(data, "f").array(wanted)
    except ContentsError:
        return
    assert (array.shape, array.dtype) == (shape, wanted.datatype.dtype)


@EXAMPLES
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), st.binary(max_size=40))
def test_shapes(shape: list[int], data: bytes) -> None:
    """Any int64 dimensions: nothing is allocated that the bytes do not hold."""
    signature = Signature((spec_of("x", "FP32", (-1, -1)),), ())
    given_ = [GivenTensor("x", "FP32", shape, RawContents(data, "raw"))]
    try:
        arrays = read_inputs(signature, given_, 1 << 20)
    except InvalidArgumentError:
        return
    assert arrays["x"].nbytes == len(data)


@EXAMPLES
@given(st.binary(max_size=200), st.none() | st.text(max_size=5) | st.integers(-5, 300).map(str))
def test_bodies(body: bytes, length: str | None) -> None:
    """Bodies that are no requests are INVALID_ARGUMENT."""
    with pytest.raises(InvalidArgumentError):
        parse(body, length)


@EXAMPLES
@given(st.dictionaries(st.sampled_from(["id", "inputs", "outputs", "parameters"]), JSON))
def test_json_bodies(said: dict[str, Any]) -> None:
    """Objects with the right keys and anything under them."""
    orjson = pytest.importorskip("orjson")
    try:
        body = orjson.dumps(said)
    except TypeError:  # numbers beyond 64 bits, lone surrogates
        return
    try:
        request = parse(body, None)
    except InvalidArgumentError:
        return
    assert isinstance(request.inputs, list)


@EXAMPLES
@given(st.binary(max_size=100), st.sampled_from(["gzip", "deflate", "br", "", "identity"]))
def test_compressed(body: bytes, encoding: str) -> None:
    """Broken archives are our errors; no output is longer than allowed."""
    try:
        data = decompress(body, encoding, 1000)
    except (InvalidArgumentError, ResourceExhaustedError):
        return
    assert len(data) <= 1000


def test_numbers_near_the_edges_of_integers() -> None:
    """The largest doubles below 2^63 and 2^64 do not wrap around."""
    for datatype, edge in (("INT64", 2.0**63), ("UINT64", 2.0**64), ("INT32", 2.0**31)):
        wanted = Wanted(BY_NAME[datatype], (1,), 1)
        for value in (edge, np.nextafter(edge, 0), -edge * 2):
            with pytest.raises(ContentsError):
                JsonContents([float(value)], "f").array(wanted)
