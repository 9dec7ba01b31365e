"""Statuses that any receiver takes: whatever an error says, it fits what gRPC's clients accept by default."""

import urllib.parse

import pytest
from google.rpc import error_details_pb2

from services.rpc.errors import FieldViolation, InferplaneError, InvalidArgumentError, NotFoundError
from services.rpc.interceptor import fitting, to_status

_RECEIVED = 8192  # bytes of metadata that grpc's clients take for sure
_OTHERS = 512  # what else is among them: the edge adds some


def metadata_bytes(error: InferplaneError) -> int:
    """What the status takes among an answer's headers."""
    status = to_status(error)
    message = urllib.parse.quote(status.message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return len(message) + -(-len(status.SerializeToString()) // 3) * 4 + _OTHERS


def many(count: int, text: str) -> InvalidArgumentError:
    """An error with so many violations."""
    return InvalidArgumentError.of_fields(
        [FieldViolation(f"targets[{n}].weight", text) for n in range(count)]
    )


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(many(1, "NaN; allowed: above 0"), id="one violation"),
        pytest.param(many(1000, "NaN; allowed: above 0"), id="a thousand violations"),
        pytest.param(many(40, "ü" * 300), id="violations in other scripts"),
        pytest.param(many(3, "x" * 100_000), id="endless violations"),
        pytest.param(NotFoundError("%" * 5000, metadata={"a": "y" * 9000}), id="endless texts"),
        pytest.param(
            NotFoundError("no", metadata={str(n): "z" * 500 for n in range(6)}, retry_after=1.0),
            id="much metadata",
        ),
    ],
)
def test_a_status_fits(error: InferplaneError) -> None:
    """Message and details together stay below what clients accept, and the reason is there."""
    assert metadata_bytes(error) < _RECEIVED
    info = error_details_pb2.ErrorInfo()
    assert to_status(error).details[0].Unpack(info)
    assert info.reason == error.reason


def test_as_many_violations_as_fit_are_told() -> None:
    """The usual number is told in full, of very many the first."""
    for count, least in ((32, 32), (1000, 30)):
        bad = error_details_pb2.BadRequest()
        assert to_status(many(count, "NaN given; allowed: above 0")).details[1].Unpack(bad)
        assert least <= len(bad.field_violations) <= count
        assert bad.field_violations[0].field == "targets[0].weight"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("short", "short", id="fits"),
        pytest.param("x" * 20, "x" * 20, id="fits exactly"),
        pytest.param("x" * 21, "x" * 16 + " ...", id="one too many"),
        pytest.param("ü" * 3, "ü" * 3, id="eighteen bytes as they are written"),
        pytest.param("ü" * 4, "ü" * 2 + " ...", id="twenty-four"),
        pytest.param("%" * 7, "%" * 5 + " ...", id="percent signs count three"),
    ],
)
def test_long_texts_are_cut(text: str, told: str) -> None:
    """Bytes are counted as they travel; what is cut says so."""
    assert fitting(text, 20) == told
