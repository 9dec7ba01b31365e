"""Heads of calls: what is gRPC, until when, which route."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.domain import call_head
from services.worker.domain.call_head import NotGrpcError

PLAIN = {b":method": b"POST", b":path": b"/s/m", b"content-type": b"application/grpc"}


def head(**changes: bytes) -> call_head.CallHead:
    changed = {**PLAIN, **{k.replace("_", "-").encode(): v for k, v in changes.items()}}
    return call_head.read(tuple(changed.items()))


def test_a_plain_head() -> None:
    """Path, no deadline, no route."""
    found = head()
    assert (found.path, found.timeout, found.version, found.endpoint) == (b"/s/m", None, None, None)


def test_a_routed_head() -> None:
    """The edge's headers are read, empty ones are none."""
    found = head(x_inferplane_version=b"models/m/versions/1", x_inferplane_endpoint=b"")
    assert (found.version, found.endpoint) == ("models/m/versions/1", None)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600),
        (b"2M", 120),
        (b"3S", 3),
        (b"4m", 0.004),
        (b"5u", 5e-6),
        (b"6n", 6e-9),
        (b"00000000S", 0),
        (b"99999999S", 99_999_999),
    ],
)
def test_timeouts(value: bytes, seconds: float) -> None:
    """Each unit of the protocol."""
    assert head(grpc_timeout=value).timeout == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"S", b"1", b"1s", b"-1S", b"123456789S", b"1.5S", b" 1S"])
def test_bad_timeouts_are_named(value: bytes) -> None:
    """INVALID_ARGUMENT names the field."""
    with pytest.raises(InvalidArgumentError, match="grpc-timeout"):
        head(grpc_timeout=value)


@pytest.mark.parametrize(
    ("kind", "is_grpc"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc-web", False),
        (b"application/grpc+json", False),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_content_types(kind: bytes, is_grpc: bool) -> None:
    """What is no gRPC in protobuf is 415."""
    if is_grpc:
        head(content_type=kind)
        return
    with pytest.raises(NotGrpcError) as caught:
        head(content_type=kind)
    assert caught.value.status == b"415"


def test_other_methods_are_405() -> None:
    """GRPC is POST."""
    with pytest.raises(NotGrpcError) as caught:
        call_head.read(((b":method", b"GET"), (b":path", b"/")))
    assert caught.value.status == b"405"


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"snappy"])
def test_compressed_calls_are_unimplemented(encoding: bytes) -> None:
    """Said before the message comes."""
    with pytest.raises(InferplaneError, match="identity") as caught:
        head(grpc_encoding=encoding)
    assert caught.value.kind.name == "UNIMPLEMENTED"
    head(grpc_encoding=b"identity")


def test_too_many_fields() -> None:
    """The limit is named."""
    many = tuple((b"x-%d" % n, b"") for n in range(300))
    with pytest.raises(InferplaneError, match="256"):
        call_head.read((*PLAIN.items(), *many))


def test_metadata_is_what_the_caller_added() -> None:
    """Neither pseudo headers nor the transport's own."""
    headers = (*PLAIN.items(), (b"te", b"trailers"), (b"grpc-timeout", b"1S"), (b"a", b"1"))
    assert call_head.metadata(headers) == [(b"a", b"1")]


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), max_size=20))
def test_any_headers_are_read_or_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """Nothing else comes out of it."""
    with contextlib.suppress(InferplaneError, NotGrpcError):
        call_head.read((*PLAIN.items(), *headers))
