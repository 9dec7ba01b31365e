"""Checks a YAML document against the message that it is to become: every wrong field by its path, in plain words."""

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from services.rpc.errors import FieldViolation

_DURATION = re.compile(r"[0-9]+(\.[0-9]{1,9})?s")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_LONGEST_KEY = 100  # characters of a key that are told
_SHOWN_LENGTH = 40  # characters of a value
_SHOWN_ITEMS = 20
_SHOWN_DEPTH = 3
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def check(document: Any, message: Descriptor, path: str = "") -> Iterator[FieldViolation]:
    """What is wrong with `document` as this message; null stands for a field that is not there."""
    if not isinstance(document, dict):
        allowed = ", ".join(message.fields_by_name)
        found = f"{path}: {_shown(document)}" if path else _shown(document)
        yield FieldViolation(path, f"{found} is not a mapping; allowed: {allowed}")
        return
    known = {field.camelcase_name: field for field in message.fields} | dict(message.fields_by_name)
    named: dict[str, Any] = {}
    for key, value in document.items():
        written = str(key)[:_LONGEST_KEY]
        inner = f"{path}.{written}" if path else written
        field = known.get(key)
        if field is None:
            allowed = ", ".join(message.fields_by_name)
            yield FieldViolation(inner, f"unknown field `{inner}`; allowed: {allowed}")
        elif named.setdefault(field.name, key) != key:
            other = named[field.name]
            yield FieldViolation(inner, f"{inner}: is there as {other} too; allowed: one of them")
        elif value is not None:
            yield from _field(field, value, inner)


def _field(field: FieldDescriptor, value: Any, path: str) -> Iterator[FieldViolation]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _texts(value, path)
    elif field.is_repeated:
        if not isinstance(value, list):
            yield FieldViolation(path, f"{path}: {_shown(value)} is not a list")
            return
        for index, each in enumerate(value):
            yield from _one(field, each, f"{path}[{index}]")
    else:
        yield from _one(field, value, path)


def _texts(value: Any, path: str) -> Iterator[FieldViolation]:
    """A mapping of texts to texts."""
    if not isinstance(value, dict):
        yield FieldViolation(path, f"{path}: {_shown(value)} is not a mapping of texts to texts")
        return
    for key, text in value.items():
        for part in (key, text):
            if not isinstance(part, str):
                yield _no_text(part, f"{path}.{key}")


def _one(field: FieldDescriptor, value: Any, path: str) -> Iterator[FieldViolation]:
    if field.message_type is not None:
        judge = _WELL_KNOWN.get(field.message_type.full_name)
        if judge is None:
            yield from check(value, field.message_type, path)
            return
    elif field.enum_type is not None:
        yield from _enum(field.enum_type, value, path)
        return
    else:
        judge = _SCALARS[field.cpp_type]
    violation = judge(value, path)
    if violation is not None:
        yield violation


def _enum(kind: EnumDescriptor, value: Any, path: str) -> Iterator[FieldViolation]:
    names = [one.name for one in kind.values]
    if value not in names:
        allowed = ", ".join(names)
        yield FieldViolation(path, f"{path}: {_shown(value)} is unknown; allowed: {allowed}")


def _duration(value: Any, path: str) -> FieldViolation | None:
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return None
    text = str(value)
    write = f"write {text}s" if _NUMBER.fullmatch(text) else "write seconds, for example 2s or 0.5s"
    return FieldViolation(path, f"{path}: {text} is not a duration; {write}")


def _time(value: Any, path: str) -> FieldViolation | None:
    if isinstance(value, str):
        return None
    return FieldViolation(
        path, f'{path}: {value} is not a time in quotes, for example "2030-01-31T12:00:00Z"'
    )


def _text(value: Any, path: str) -> FieldViolation | None:
    return None if isinstance(value, str) else _no_text(value, path)


def _no_text(value: Any, path: str) -> FieldViolation:
    quoted = f"; write {json.dumps(str(value))}" if isinstance(value, int | float) else ""
    return FieldViolation(path, f"{path}: {_shown(value)} is not a text{quoted}")


def _number(value: Any, path: str) -> FieldViolation | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value):
        return None
    return FieldViolation(path, f"{path}: {_shown(value)} is not a number")


def _whole_number(value: Any, path: str) -> FieldViolation | None:
    if _is_whole(value) and int(value) in _INT32:
        return None
    return FieldViolation(path, f"{path}: {_shown(value)} is not a whole number of 32 bits")


def _long_number(value: Any, path: str) -> FieldViolation | None:
    """Also as text, which is how protobuf writes numbers of 64 bits as JSON."""
    is_text = isinstance(value, str) and _DIGITS.fullmatch(value) is not None
    if (is_text or _is_whole(value)) and int(value) in _INT64:
        return None
    return FieldViolation(path, f"{path}: {_shown(value)} is not a whole number of 64 bits")


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: Any, path: str) -> FieldViolation | None:
    if isinstance(value, bool):
        return None
    return FieldViolation(path, f"{path}: {_shown(value)} is neither true nor false")


def _shown(value: Any) -> str:
    """A value in a message: short, and on one line."""
    text = json.dumps(_outline(value, _SHOWN_DEPTH), ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


def _outline(value: Any, depth: int) -> Any:
    """The beginning of a value; with aliases it may be of any size, and hold itself."""
    if isinstance(value, str):
        return value[:_SHOWN_LENGTH]
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, list):
        return [_outline(each, depth - 1) for each in value[:_SHOWN_ITEMS]]
    items = islice(value.items(), _SHOWN_ITEMS)
    return {str(key)[:_SHOWN_LENGTH]: _outline(each, depth - 1) for key, each in items}


_Judge = Callable[[Any, str], FieldViolation | None]

_WELL_KNOWN: dict[str, _Judge] = {
    "google.protobuf.Duration": _duration,
    "google.protobuf.Timestamp": _time,
}
_SCALARS: dict[int, _Judge] = {
    FieldDescriptor.CPPTYPE_STRING: _text,
    FieldDescriptor.CPPTYPE_DOUBLE: _number,
    FieldDescriptor.CPPTYPE_INT32: _whole_number,
    FieldDescriptor.CPPTYPE_INT64: _long_number,
    FieldDescriptor.CPPTYPE_BOOL: _flag,
}
