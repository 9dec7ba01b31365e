"""Raw, typed and JSON contents of one tensor: what is taken, what is refused and in which words."""

import math
import struct
from typing import Any

import numpy as np
import pytest

from services.worker.domain.contents import Contents, ContentsError, Wanted
from services.worker.domain.datatype import BF16, BOOL, BY_NAME, BYTES, FP16
from services.worker.domain.json_contents import JsonContents, NotFiniteError, to_json
from services.worker.domain.raw_contents import RawContents, raw_size, to_raw
from services.worker.domain.typed_contents import TypedContents


def wanted(datatype: str, *shape: int) -> Wanted:
    return Wanted(BY_NAME[datatype], shape, math.prod(shape))


def refusal(contents: Contents, what: Wanted) -> str:
    with pytest.raises(ContentsError) as caught:
        contents.array(what)
    violation = caught.value.violation
    return f"{violation.field}: {violation.description}"


def raw(data: bytes) -> RawContents:
    return RawContents(data, "raw_input_contents[0]")


def typed(**fields: Any) -> TypedContents:
    return TypedContents(fields, "inputs[0].contents")


def json(data: Any) -> JsonContents:
    return JsonContents(data, "inputs[0].data")


NUMBERS = [name for name, d in BY_NAME.items() if d is not BYTES]


@pytest.mark.parametrize("name", NUMBERS)
def test_raw_numbers_are_views_and_come_back_bit_for_bit(name: str) -> None:
    """Every fixed-size datatype goes from bytes to array to the same bytes, without a copy on the way in."""
    size = BY_NAME[name].size
    data = bytes([0, 1] * 3 * size) if name != "BOOL" else b"\x00\x01\x01\x00\x01\x00"
    array = raw(data).array(wanted(name, 2, len(data) // size // 2))
    assert array.dtype == BY_NAME[name].dtype
    assert not array.flags.owndata
    assert to_raw(array) == data


@pytest.mark.parametrize("datatype", [FP16, BF16], ids=lambda d: d.name)
def test_all_sixteen_bit_patterns_survive(datatype: Any) -> None:
    """NaN payloads too: concatenation and slicing of half types move bits, not values."""
    data = np.arange(1 << 16, dtype=np.uint16).tobytes()
    array = raw(data).array(Wanted(datatype, (1 << 16,), 1 << 16))
    assert to_raw(np.concatenate([array[:7], array[7:]])) == data


def test_raw_strings_come_back() -> None:
    """BYTES elements, empty and with several bytes a character, come back as they were."""
    data = b"".join(struct.pack("<I", len(e)) + e for e in (b"", "zürich".encode(), b"a\0b"))
    array = raw(data).array(wanted("BYTES", 3, 1))
    assert array.tolist() == [[""], ["zürich"], ["a\0b"]]
    assert to_raw(array) == data
    assert raw_size([array]) == 3 * 4 + len("zürich") + 3


@pytest.mark.parametrize(
    ("data", "what", "words"),
    [
        pytest.param(b"123", wanted("FP32", 1), "3 bytes given; allowed: 4", id="too short"),
        pytest.param(b"12345", wanted("FP32", 1), "5 bytes given; allowed: 4", id="too long"),
        pytest.param(b"1", wanted("FP32", 0, 4), "1 bytes given; allowed: 0", id="not empty"),
        pytest.param(b"\x00\x02", wanted("BOOL", 2), "byte 2 at element 1", id="bool of 2"),
        pytest.param(b"\x01\0\0", wanted("BYTES", 1), "at least 4", id="no length"),
        pytest.param(
            b"\x05\0\0\0abcd",
            wanted("BYTES", 1),
            "element 0 has length 5; allowed: at most 4",
            id="length past the end",
        ),
        pytest.param(
            b"\xff\xff\xff\xffabcd",
            wanted("BYTES", 1),
            "element 0 has length 4294967295",
            id="largest length",
        ),
        pytest.param(
            b"\x05\0\0\0abcde\0\0", wanted("BYTES", 2), "element 1", id="second length cut"
        ),
        pytest.param(
            b"\x01\0\0\0aXX", wanted("BYTES", 1), "2 bytes after the last element", id="trailing"
        ),
        pytest.param(b"\x01\0\0\0\xff", wanted("BYTES", 1), "element 0 is not UTF-8", id="utf-8"),
    ],
)
def test_raw_refusals(data: bytes, what: Wanted, words: str) -> None:
    """Lengths are checked before anything is read past them."""
    text = refusal(raw(data), what)
    assert text.startswith("raw_input_contents[0]: ")
    assert words in text


@pytest.mark.parametrize(
    ("fields", "what", "expected"),
    [
        pytest.param({"fp32_contents": [1.5, 2]}, wanted("FP32", 2), [1.5, 2.0], id="fp32"),
        pytest.param({"fp64_contents": [0.1]}, wanted("FP64", 1), [0.1], id="fp64"),
        pytest.param({"int_contents": [-128, 127]}, wanted("INT8", 2), [-128, 127], id="int8"),
        pytest.param({"int_contents": [1]}, wanted("INT32", 1, 1), [[1]], id="int32"),
        pytest.param({"int64_contents": [1 << 62]}, wanted("INT64", 1), [1 << 62], id="int64"),
        pytest.param({"uint_contents": [255]}, wanted("UINT8", 1), [255], id="uint8"),
        pytest.param({"uint64_contents": [2**64 - 1]}, wanted("UINT64", 1), [2**64 - 1], id="u64"),
        pytest.param({"bool_contents": [True]}, wanted("BOOL", 1), [True], id="bool"),
        pytest.param({"bytes_contents": ["ü".encode()]}, wanted("BYTES", 1), ["ü"], id="bytes"),
        pytest.param({}, wanted("FP32", 0, 3), [], id="empty"),
    ],
)
def test_typed_contents(fields: dict[str, Any], what: Wanted, expected: list[Any]) -> None:
    """Each datatype is taken from its own field."""
    array = typed(**fields).array(what)
    assert array.tolist() == expected
    assert array.dtype == what.datatype.dtype


@pytest.mark.parametrize(
    ("fields", "what", "words"),
    [
        pytest.param(
            {"fp32_contents": [1]}, wanted("FP32", 2), "1 elements given; allowed: 2", id="n"
        ),
        pytest.param(
            {"fp64_contents": [1]}, wanted("FP32", 1), "fp64_contents given", id="other field"
        ),
        pytest.param(
            {"int_contents": [300]},
            wanted("INT8", 1),
            "300 at element 0; allowed for INT8",
            id="range",
        ),
        pytest.param({"uint_contents": [65536]}, wanted("UINT16", 1), "0 to 65535", id="u16 range"),
        pytest.param({"fp32_contents": [1]}, wanted("FP16", 1), "no field for FP16", id="fp16"),
        pytest.param({}, wanted("BF16", 1), "allowed: raw_input_contents", id="bf16"),
        pytest.param(
            {"bytes_contents": [b"a", b"\xc3"]}, wanted("BYTES", 2), "element 1", id="utf-8"
        ),
    ],
)
def test_typed_refusals(fields: dict[str, Any], what: Wanted, words: str) -> None:
    """Field, count and range are named."""
    assert words in refusal(typed(**fields), what)


@pytest.mark.parametrize(
    ("data", "what", "expected"),
    [
        pytest.param([[1, 2], [3, 4]], wanted("FP32", 2, 2), [[1, 2], [3, 4]], id="nested"),
        pytest.param([1, 2, 3, 4], wanted("FP32", 2, 2), [[1, 2], [3, 4]], id="flat"),
        pytest.param(5, wanted("INT32"), 5, id="scalar"),
        pytest.param([5], wanted("INT32"), 5, id="scalar in a list"),
        pytest.param([1, 2.0], wanted("INT8", 2), [1, 2], id="whole doubles"),
        pytest.param([2**64 - 1, 1], wanted("UINT64", 2), [2**64 - 1, 1], id="uint64"),
        pytest.param([-(2**63)], wanted("INT64", 1), [-(2**63)], id="int64"),
        pytest.param([True, False], wanted("BOOL", 2), [True, False], id="booleans"),
        pytest.param([1, 0], wanted("BOOL", 2), [True, False], id="booleans as numbers"),
        pytest.param([0.5], wanted("FP16", 1), [0.5], id="fp16"),
        pytest.param([0.5], wanted("BF16", 1), [0.5], id="bf16"),
        pytest.param([["a"], ["ü"]], wanted("BYTES", 2, 1), [["a"], ["ü"]], id="strings"),
        pytest.param([], wanted("FP32", 0, 2), [], id="empty"),
        pytest.param([], wanted("BYTES", 0), [], id="no strings"),
    ],
)
def test_json_contents(data: Any, what: Wanted, expected: Any) -> None:
    """Nested as the shape or flat, numbers in the datatype's range."""
    array = json(data).array(what)
    assert array.tolist() == expected
    assert array.dtype == what.datatype.dtype


@pytest.mark.parametrize(
    ("data", "what", "words"),
    [
        pytest.param([[1, 2, 3, 4]], wanted("FP32", 2, 2), "nesting [1, 4] given", id="nesting"),
        pytest.param([1, 2, 3], wanted("FP32", 2, 2), "flat list of 4", id="count"),
        pytest.param([[1, 2], [3]], wanted("FP32", 2, 2), "different lengths", id="ragged"),
        pytest.param(
            [["a"], ["b", "c"]], wanted("BYTES", 2, 1), "different lengths", id="ragged str"
        ),
        pytest.param([300], wanted("UINT8", 1), "300 at element 0; allowed for UINT8", id="range"),
        pytest.param([-1], wanted("UINT64", 1), "-1 at element 0", id="negative"),
        pytest.param([1.5], wanted("INT32", 1), "1.5 at element 0", id="fraction"),
        pytest.param([2**63, -1], wanted("INT64", 2), "at element 0", id="mixed extremes"),
        pytest.param([2.0**70], wanted("INT64", 1), "at element 0", id="too large for int64"),
        pytest.param([1e39], wanted("FP32", 1), "beyond the range of FP32", id="fp32 range"),
        pytest.param([70000], wanted("FP16", 1), "beyond the range of FP16", id="fp16 range"),
        pytest.param(["1"], wanted("FP32", 1), "strings given", id="text for number"),
        pytest.param([None], wanted("FP32", 1), "None at element 0", id="null"),
        pytest.param([{}], wanted("FP32", 1), "{} at element 0", id="object"),
        pytest.param([True], wanted("INT32", 1), "booleans given", id="boolean for number"),
        pytest.param([2], wanted("BOOL", 1), "true and false", id="number for boolean"),
        pytest.param([1], wanted("BYTES", 1), "1 at element 0; allowed for BYTES", id="number"),
        pytest.param("abc", wanted("BYTES", 3), "nesting [] given", id="text for a list"),
    ],
)
def test_json_refusals(data: Any, what: Wanted, words: str) -> None:
    """Wrong nesting, type or range is named with element and rule."""
    assert words in refusal(json(data), what)


def test_deep_nesting_is_refused() -> None:
    """Depth beyond what arrays have is an answer, not a crash."""
    data: Any = 1
    for _ in range(200):
        data = [data]
    assert "different lengths or depths" in refusal(json(data), wanted("FP32", 1))


def test_outputs_as_json() -> None:
    """Outputs are flat; what JSON cannot carry raises."""
    assert to_json(np.array([["a"], ["b"]], dtype=object)) == ["a", "b"]
    assert to_json(np.array([[1, 2]], BF16.dtype)).tolist() == [1.0, 2.0]
    assert to_json(np.array([[True]], BOOL.dtype)).tolist() == [True]
    for value in (np.nan, np.inf):
        with pytest.raises(NotFiniteError):
            to_json(np.array([1, value], np.float16))
