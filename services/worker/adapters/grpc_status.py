"""Errors as gRPC trailers, by the mapping that all our servers share."""

import base64
import urllib.parse

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import DETAILS_KEY, retry_header, to_status
from services.worker.domain.call_head import Headers

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def trailers(code: int, message: str, details: bytes = b"") -> Headers:
    """`grpc-status` and, where there is something to say, `grpc-message` and `grpc-status-details-bin`."""
    found = [(b"grpc-status", b"%d" % code)]
    if message:
        found.append((b"grpc-message", urllib.parse.quote(message, safe=_PRINTABLE).encode()))
    if details:
        found.append((DETAILS_KEY.encode(), base64.b64encode(details).rstrip(b"=")))
    return tuple(found)


def trailers_of(error: InferplaneError) -> Headers:
    """The trailers of an error."""
    status = to_status(error)
    again = [(key.encode(), value.encode()) for key, value in retry_header(error)]
    return (*trailers(status.code, status.message, status.SerializeToString()), *again)
