"""What makes two requests the same: a digest over everything that an answer depends on."""

import struct
from hashlib import blake2b
from typing import NewType

from services.worker.domain.infer_request import InferRequest

RequestDigest = NewType("RequestDigest", bytes)

_LENGTH = struct.Struct("<q")
_SIZE = 32  # bytes: nobody finds two requests of one digest


def digest(version_digest: str, request: InferRequest) -> RequestDigest:
    """Of version, tenant, inputs (names, datatypes, shapes, data) and the outputs that are wanted, in any order.

    No two requests give the same bytes: Python's notation of the head says where it ends, datatype and shape say how
    long numbers are, and each text comes after its length.
    """
    feeds = request.feeds
    tensors = [(name, array.dtype.str, array.shape) for name, array in feeds.items()]
    head = (version_digest, request.tenant, sorted(request.outputs), tensors)
    hasher = blake2b(repr(head).encode("utf-8", "surrogatepass"), digest_size=_SIZE)
    for array in feeds.values():
        if array.dtype == object:
            for text in array.ravel():
                encoded = text.encode()
                hasher.update(_LENGTH.pack(len(encoded)) + encoded)
        else:
            hasher.update(array.tobytes())
    return RequestDigest(hasher.digest())
