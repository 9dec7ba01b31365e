"""Etags: a digest of what a record says, so that equal records have equal etags."""

import hashlib

from services.rpc.errors import AbortedError

_BYTES = 9


def etag_of(record: object) -> str:
    """The record's etag; its repr must say all of it, in a fixed order."""
    return hashlib.blake2b(repr(record).encode(), digest_size=_BYTES).hexdigest()


def check_etag(name: object, record: object, given: str) -> None:
    """Refuse a change that was made from another state; an empty etag asks for no check."""
    stored = etag_of(record)
    if given and given != stored:
        raise AbortedError(
            f"etag: {given!a} was given, but {name} has {stored!a} by now; read it again, then repeat"
            " the change",
            metadata={"resource": str(name), "given": given, "etag": stored},
        )
