"""Who calls, as the edge says: it alone may set these headers."""

import os
from binascii import Error, unhexlify
from dataclasses import dataclass, field
from hashlib import blake2b

KEY_HEADER = b"x-inferplane-key"
SHADOW_HEADER = b"x-inferplane-shadow"
REQUEST_ID_HEADER = b"x-request-id"


@dataclass(frozen=True, slots=True)
class Caller:
    """Ids; empty where the edge asks for no key."""

    project: str = ""
    key: str = ""
    endpoint: str = ""
    is_shadow: bool = False  # a mirrored copy: counted, never billed, bound by no budget
    _hash: int = field(init=False, repr=False, compare=False)  # it is looked up for each request

    def __post_init__(self) -> None:
        told = hash((self.project, self.key, self.endpoint, self.is_shadow))
        object.__setattr__(self, "_hash", told)

    def __hash__(self) -> int:
        return self._hash


NOBODY = Caller()
_ID_BYTES = 16


def id_bytes(value: bytes | None) -> bytes:
    """16 bytes from what the edge says: those of a UUID, of anything else a digest, of nothing random ones."""
    if not value:
        return os.urandom(_ID_BYTES)
    try:
        found = unhexlify(value.replace(b"-", b""))
    except Error:
        found = b""
    return found if len(found) == _ID_BYTES else blake2b(value, digest_size=_ID_BYTES).digest()
