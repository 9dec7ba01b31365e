"""Records as JSON text, and back. A field with a default may be missing in text that an older release wrote."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from services.registry.domain.catalog import KIND_OF, R, Record, ResourceKind

_TYPE_OF = {kind: type_ for type_, kind in KIND_OF.items()}


@cache
def _adapter(kind: ResourceKind) -> TypeAdapter[Any]:
    """Made once it is needed: that takes milliseconds, and few starts need all."""
    return TypeAdapter(_TYPE_OF[kind])


def encode(record: Record) -> str:
    """The record as JSON."""
    return _adapter(KIND_OF[type(record)]).dump_json(record).decode()


def decode_any(kind: ResourceKind, text: str) -> Record:
    """The record of this kind that `encode` wrote."""
    record: Record = _adapter(kind).validate_json(text)
    return record


def decode(kind: type[R], text: str) -> R:
    """The record that `encode` wrote."""
    record = decode_any(KIND_OF[kind], text)
    assert isinstance(record, kind)
    return record
