"""What makes two requests the same: a digest over everything that an answer depends on."""

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import NewType

import numpy as np

from services.worker.domain.infer_request import InferRequest

RequestDigest = NewType("RequestDigest", bytes)

_NUMBER = struct.Struct("<q")
_SIZE = 32  # bytes: nobody finds two requests of one digest


def digest(version_digest: str, request: InferRequest) -> RequestDigest:
    """Of version, tenant, inputs (names, datatypes, shapes, data) and the outputs that are wanted, in any order.

    Each piece comes after its length, so no two requests give the same bytes.
    """
    hasher = blake2b(digest_size=_SIZE)
    outputs = sorted(request.outputs)
    texts = (version_digest, request.tenant, str(len(outputs)), *outputs)
    hasher.update(b"".join(_with_lengths(text.encode() for text in texts)))
    for name, array in request.feeds.items():
        head = (name.encode(), array.dtype.str.encode(), array.dtype.name.encode())
        shape = (_NUMBER.pack(dim) for dim in array.shape)
        hasher.update(b"".join(_with_lengths((*head, b"".join(shape)))))
        if array.dtype == object:
            hasher.update(b"".join(_with_lengths(text.encode() for text in array.ravel())))
        else:
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return RequestDigest(hasher.digest())


def _with_lengths(pieces: Iterable[bytes]) -> Iterable[bytes]:
    for piece in pieces:
        yield _NUMBER.pack(len(piece))
        yield piece
