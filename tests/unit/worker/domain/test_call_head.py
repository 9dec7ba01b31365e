"""Heads of calls: what is gRPC, until when, which route."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.domain import call_head
from services.worker.domain.call_head import CallHead, Headers, Heads, NotGrpcError

PLAIN = {b":method": b"POST", b":path": b"/s/m", b"content-type": b"application/grpc"}


def read(headers: Headers) -> tuple[CallHead, float | None, bytes | None]:
    """The same whether it is read for the first time or again, with other fields beside."""
    heads = Heads()
    first = heads.read(headers)
    assert heads.read(headers) == first
    assert heads.read((*headers, (b"x-request-id", b"1"))) == (*first[:2], b"1")
    return first


def head(**changes: bytes) -> CallHead:
    return read(fields(**changes))[0]


def fields(**changes: bytes) -> Headers:
    changed = {**PLAIN, **{k.replace("_", "-").encode(): v for k, v in changes.items()}}
    return tuple(changed.items())


def test_a_plain_head() -> None:
    """Path, no deadline, no route, no tenant."""
    found, timeout, _ = read(fields())
    assert (found.path, timeout, found.version, found.endpoint) == (b"/s/m", None, None, None)
    assert found.tenant == ""


def test_a_routed_head() -> None:
    """The edge's headers are read, empty ones are none."""
    found = head(
        x_inferplane_version=b"models/m/versions/1",
        x_inferplane_endpoint=b"",
        x_inferplane_project=b"p",
    )
    assert (found.version, found.endpoint, found.tenant) == ("models/m/versions/1", None, "p")


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
    assert read(fields(grpc_timeout=value))[1] == pytest.approx(seconds)


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
        Heads().read(((b":method", b"GET"), (b":path", b"/")))
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
        Heads().read((*PLAIN.items(), *many))


def test_metadata_is_what_the_caller_added() -> None:
    """Neither pseudo headers nor the transport's own."""
    headers = (*PLAIN.items(), (b"te", b"trailers"), (b"grpc-timeout", b"1S"), (b"a", b"1"))
    assert call_head.metadata(headers) == [(b"a", b"1")]


def test_each_decisive_field_makes_another_head() -> None:
    """What was found right for one is not taken for another."""
    heads = Heads()
    seen = {heads.read(fields())[0]}
    for name in ("x_inferplane_version", "x_inferplane_endpoint", "x_inferplane_project"):
        for value in (b"a", b"b"):
            seen.add(heads.read(fields(**{name: value}))[0])
    assert len(seen) == 7
    with pytest.raises(NotGrpcError):
        heads.read(fields(content_type=b"text/plain"))
    with pytest.raises(InferplaneError):
        heads.read(fields(grpc_encoding=b"gzip"))


def test_what_is_remembered_is_bounded() -> None:
    """However many routes there are, and however long they are."""
    heads = Heads()
    for number in range(5000):
        heads.read(fields(x_inferplane_endpoint=b"%d" % number))
        heads.read(fields(x_inferplane_endpoint=b"%d" % number * 1000))
    assert heads.remembered <= 1024


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), max_size=20))
def test_any_headers_are_read_or_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """Nothing else comes out of it."""
    with contextlib.suppress(InferplaneError, NotGrpcError):
        Heads().read((*PLAIN.items(), *headers))
