"""The header fields of a gRPC request: which method, until when, and what Envoy says about the route."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from services.worker.domain.caller import (
    KEY_HEADER,
    NOBODY,
    REQUEST_ID_HEADER,
    SHADOW_HEADER,
    Caller,
)

Headers = Sequence[tuple[bytes, bytes]]

VERSION_HEADER = b"x-inferplane-version"
ENDPOINT_HEADER = b"x-inferplane-endpoint"
TENANT_HEADER = b"x-inferplane-project"
ATTEMPT_HEADER = b"x-envoy-attempt-count"

_MOST_HEADERS = 256  # fields; Envoy lets 100 pass and adds some
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENCODINGS = (None, b"identity")
# Said to the transport, not to the method.
_OF_THE_TRANSPORT = frozenset(
    {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"}
)

# All that a head is made from; other fields change nothing about it.
_DECISIVE = (
    b":method",
    b":path",
    b"content-type",
    b"grpc-encoding",
    VERSION_HEADER,
    ENDPOINT_HEADER,
    TENANT_HEADER,
    ATTEMPT_HEADER,
    KEY_HEADER,
    SHADOW_HEADER,
)
_decisive = itemgetter(*_DECISIVE)
_ABSENT: dict[bytes, bytes | None] = dict.fromkeys((*_DECISIVE, b"grpc-timeout", REQUEST_ID_HEADER))
_MOST_HEADS = 1024  # remembered at once
_LONGEST_REMEMBERED = 2048  # bytes of decisive fields


class NotGrpcError(Exception):
    """The request is no gRPC call: it is answered in HTTP's own words."""

    def __init__(self, status: bytes) -> None:
        super().__init__(status.decode())
        self.status = status


@dataclass(frozen=True, slots=True, eq=False)
class CallHead:
    """What a request is and where it belongs. Equal only to itself: `Heads` gives the same one for the same fields."""

    path: bytes
    version: str | None  # `x-inferplane-version`
    endpoint: str | None  # `x-inferplane-endpoint`
    tenant: str  # `x-inferplane-project`; empty: none
    attempt: int = 1  # Envoy's count; beyond 1 it has sent it to another worker before
    caller: Caller = NOBODY
    route: "Route" = field(init=False)  # what calls of many callers have in common

    def __post_init__(self) -> None:
        route = (self.version, self.endpoint, self.tenant, self.retried)
        object.__setattr__(self, "route", route)

    @property
    def retried(self) -> bool:
        """Whether Envoy has sent it to another worker before."""
        return self.attempt > 1


Route = tuple[str | None, str | None, str, bool]


class Heads:
    """Reads heads; fields that were found right are not checked again."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._known: dict[tuple[bytes | None, ...], CallHead] = {}

    def read(self, headers: Headers) -> tuple[CallHead, float | None, bytes | None]:
        """The head, the seconds that its caller waits, the edge's id. Raises NotGrpcError, or what else is wrong."""
        fields = _ABSENT.copy()
        fields.update(headers)
        decisive = _decisive(fields)
        head = self._known.get(decisive)
        if head is None or len(headers) > _MOST_HEADERS:
            head = _checked(fields, len(headers))
            self._remember(decisive, head)
        timeout = fields[b"grpc-timeout"]
        seconds = None if timeout is None else read_timeout(timeout)
        return head, seconds, fields[REQUEST_ID_HEADER]

    @property
    def remembered(self) -> int:
        """Heads that are known."""
        return len(self._known)

    def _remember(self, decisive: tuple[bytes | None, ...], head: CallHead) -> None:
        if sum(len(value) for value in decisive if value) > _LONGEST_REMEMBERED:
            return
        if len(self._known) >= _MOST_HEADS:  # what is still in use comes back at once
            self._known.clear()
        self._known[decisive] = head


def _checked(fields: dict[bytes, bytes | None], count: int) -> CallHead:
    if fields[b":method"] != b"POST":
        raise NotGrpcError(b"405")
    kind = fields[b"content-type"] or b""
    if kind != b"application/grpc" and not kind.startswith(
        (b"application/grpc+proto", b"application/grpc;")
    ):
        raise NotGrpcError(b"415")
    if count > _MOST_HEADERS:
        raise ResourceExhaustedError(
            f"the request has {count} header fields; allowed: {_MOST_HEADERS}",
            reason="TOO_MANY_HEADERS",
            metadata={"count": str(count), "limit": str(_MOST_HEADERS)},
        )
    if fields[b"grpc-encoding"] not in _ENCODINGS:
        raise UnimplementedError(
            "messages are compressed; allowed: grpc-encoding identity, or none",
            reason="COMPRESSION_UNSUPPORTED",
        )
    endpoint, tenant = _text(fields[ENDPOINT_HEADER]), _text(fields[TENANT_HEADER]) or ""
    return CallHead(
        fields[b":path"] or b"",
        _text(fields[VERSION_HEADER]),
        endpoint,
        tenant,
        read_attempt(fields[ATTEMPT_HEADER]),
        Caller(
            project=tenant,
            key=_text(fields[KEY_HEADER]) or "",
            endpoint=endpoint or "",
            is_shadow=fields[SHADOW_HEADER] == b"1",
        ),
    )


def read_attempt(value: bytes | None) -> int:
    """Envoy's count; 1 where it counts nothing."""
    return max(1, int(value)) if value and value.isdigit() and len(value) < 6 else 1


def read_timeout(value: bytes) -> float:
    """Seconds of a `grpc-timeout`. Raises InvalidArgumentError."""
    digits, unit = value[:-1], _SECONDS.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > 8:
        raise InvalidArgumentError.of_field(
            "grpc-timeout", f"{value[:40]!r} given; allowed: up to 8 digits and one of H M S m u n"
        )
    return int(digits) * unit


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
