"""The headers of a gRPC request: which method, until when, and what Envoy says about the route."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError

Headers = Sequence[tuple[bytes, bytes]]

VERSION_HEADER = b"x-inferplane-version"
ENDPOINT_HEADER = b"x-inferplane-endpoint"

_MOST_HEADERS = 256  # fields; Envoy lets 100 pass and adds some
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENCODINGS = (None, b"identity")
# Said to the transport, not to the method.
_OF_THE_TRANSPORT = frozenset(
    {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"}
)


class NotGrpcError(Exception):
    """The request is no gRPC call: it is answered in HTTP's own words."""

    def __init__(self, status: bytes) -> None:
        super().__init__(status.decode())
        self.status = status


@dataclass(slots=True)
class CallHead:
    """What a request said before its message."""

    path: bytes
    timeout: float | None  # seconds from its arrival
    version: str | None  # `x-inferplane-version`
    endpoint: str | None  # `x-inferplane-endpoint`
    headers: Headers  # all as they came


def read(headers: Headers) -> CallHead:
    """The head of a call. Raises NotGrpcError, or InferplaneError with what is wrong."""
    last = dict(headers)
    if last.get(b":method") != b"POST":
        raise NotGrpcError(b"405")
    kind = last.get(b"content-type", b"")
    if kind != b"application/grpc" and not kind.startswith(
        (b"application/grpc+proto", b"application/grpc;")
    ):
        raise NotGrpcError(b"415")
    if len(headers) > _MOST_HEADERS:
        raise ResourceExhaustedError(
            f"the request has {len(headers)} header fields; allowed: {_MOST_HEADERS}",
            reason="TOO_MANY_HEADERS",
            metadata={"count": str(len(headers)), "limit": str(_MOST_HEADERS)},
        )
    if last.get(b"grpc-encoding") not in _ENCODINGS:
        raise UnimplementedError(
            "messages are compressed; allowed: grpc-encoding identity, or none",
            reason="COMPRESSION_UNSUPPORTED",
        )
    timeout = last.get(b"grpc-timeout")
    return CallHead(
        last.get(b":path", b""),
        None if timeout is None else read_timeout(timeout),
        _text(last.get(VERSION_HEADER)),
        _text(last.get(ENDPOINT_HEADER)),
        headers,
    )


def read_timeout(value: bytes) -> float:
    """Seconds of a `grpc-timeout`. Raises InvalidArgumentError."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise InvalidArgumentError.of_field(
            "grpc-timeout", f"{value[:40]!r} given; allowed: up to 8 digits and one of H M S m u n"
        )
    return int(found[1]) * _SECONDS[found[2]]


def metadata(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The fields that the caller, or the edge, added for the method."""
    return [
        (key, value)
        for key, value in headers
        if not key.startswith(b":") and key not in _OF_THE_TRANSPORT
    ]


def _text(value: bytes | None) -> str | None:
    """Nothing and an empty value are the same."""
    return value.decode("utf-8", "replace") if value else None
