"""Bytes in the metadata of a Consul service, which holds 64 pairs of at most 128 and 512 bytes."""

import base64
import binascii
import zlib
from collections.abc import Mapping

MOST_PAIRS = 64
MOST_KEY_BYTES = 128
MOST_VALUE_BYTES = 512
_CHUNKS = "chunks"
_MOST_CHUNKS = 56  # the rest is for people: pool, zone, and what may come
CAPACITY = _MOST_CHUNKS * MOST_VALUE_BYTES // 4 * 3  # bytes, compressed
_MOST_CONTENT = 8 * 1024 * 1024  # bytes; nobody's metadata is let grow beyond


class MetaError(Exception):
    """Metadata that holds nothing that was packed here."""


def pack(content: bytes) -> dict[str, str] | None:
    """The content, compressed, as pairs; None: it doesn't fit."""
    packed = zlib.compress(content, 9)
    if len(packed) > CAPACITY:
        return None
    text = base64.b64encode(packed).decode("ascii")
    chunks = [text[at : at + MOST_VALUE_BYTES] for at in range(0, len(text), MOST_VALUE_BYTES)]
    pairs = {_key(number): chunk for number, chunk in enumerate(chunks)}
    return {_CHUNKS: str(len(chunks)), **pairs}


def unpack(meta: Mapping[str, str]) -> bytes:
    """What was packed. Raises MetaError."""
    count = meta.get(_CHUNKS, "")
    if not count.isdecimal() or not 0 < int(count) <= _MOST_CHUNKS:
        raise MetaError(f"{_CHUNKS}={count!r}; allowed: 1 to {_MOST_CHUNKS}")
    try:
        text = "".join(meta[_key(number)] for number in range(int(count)))
        packed = base64.b64decode(text, validate=True)
        inflating = zlib.decompressobj()
        content = inflating.decompress(packed, _MOST_CONTENT)
    except (KeyError, ValueError, binascii.Error, zlib.error) as error:
        raise MetaError(f"chunks are damaged: {error!r}") from error
    if not inflating.eof:
        raise MetaError("chunks are cut short, or hold more than is allowed")
    return content


def _key(number: int) -> str:
    return f"worker-{number:02d}"
