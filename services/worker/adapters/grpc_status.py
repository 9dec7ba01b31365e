"""Errors as gRPC trailers, by the mapping that all our servers share."""

import base64
import urllib.parse

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import DETAILS_KEY, to_status
from services.worker.domain.call_head import Headers

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
# Receivers bound what headers of an answer may have (grpc: 8 KiB in all, unless told otherwise).
_LONGEST_MESSAGE = 1536  # bytes
_LONGEST_DETAILS = 4096


def trailers(code: int, message: str, details: bytes = b"") -> Headers:
    """`grpc-status` and, where there is something to say, `grpc-message` and `grpc-status-details-bin`."""
    found = [(b"grpc-status", b"%d" % code)]
    if message:
        cut = _cut(message)
        found.append((b"grpc-message", urllib.parse.quote(cut, safe=_PRINTABLE).encode()))
    if details:
        found.append((DETAILS_KEY.encode(), base64.b64encode(details).rstrip(b"=")))
    return tuple(found)


def trailers_of(error: InferplaneError) -> Headers:
    """The trailers of an error; if all details are too long, `ErrorInfo` alone."""
    status = to_status(error)
    status.message = _cut(status.message)
    if status.ByteSize() > _LONGEST_DETAILS:
        del status.details[1:]
    details = status.SerializeToString() if status.ByteSize() <= _LONGEST_DETAILS else b""
    return trailers(status.code, status.message, details)


def _cut(message: str) -> str:
    return message.encode()[:_LONGEST_MESSAGE].decode("utf-8", "ignore")
