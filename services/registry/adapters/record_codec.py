"""Records as JSON text, and back. A field with a default may be missing in text that an older release wrote."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from services.registry.domain.catalog import KIND_OF, R, Record, ResourceKind

_ADAPTERS: Mapping[ResourceKind, TypeAdapter[Any]] = {
    kind: TypeAdapter(type_) for type_, kind in KIND_OF.items()
}


def encode(record: Record) -> str:
    """The record as JSON."""
    return _ADAPTERS[KIND_OF[type(record)]].dump_json(record).decode()


def decode_any(kind: ResourceKind, text: str) -> Record:
    """The record of this kind that `encode` wrote."""
    record: Record = _ADAPTERS[kind].validate_json(text)
    return record


def decode(kind: type[R], text: str) -> R:
    """The record that `encode` wrote."""
    record = decode_any(KIND_OF[kind], text)
    assert isinstance(record, kind)
    return record
