"""The form of a request that was found right once: another one of that form differs in raw data and id alone.

A request's message is: model and version, perhaps an id, everything else but the data, then the data of each tensor
after its key and length (protobuf writes fields by number, and raw data has the last one). Where all but id and data
are byte by byte those of a request that was checked, checking again would say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from services.worker.domain.contents import Array

Known = TypeVar("Known")

RAW_KEY = b"\x3a"  # field 7 of a request: raw data
_NAME_KEY, _VERSION_KEY, _ID_KEY = 0x0A, 0x12, 0x1A  # fields 1, 2, 3, each of a length and bytes
_ONE_BYTE = 0x80  # lengths below it are one byte
_MOST_PER_SIZE = 8


@dataclass(frozen=True, slots=True)
class RawTensor:
    """One input of a request that was found right: its data is as long as its shape says, any bytes are valid."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class TensorForm:
    """One input: where its data lies, counted from the first data's key, and what it becomes."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    key: bytes  # precedes the data: field and length
    begin: int  # of the data
    end: int


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A form: the bytes that must be there, and what the data becomes."""

    head: bytes  # model and version
    rest: bytes  # what follows the id, up to and with the first data's key
    tensors: tuple[TensorForm, ...]
    start: int  # of the first data's key in a message without id
    size: int  # of a message without id

    def feeds(self, message: bytes, start: int) -> dict[str, Array] | None:
        """The inputs of a message whose first data's key begins at `start`; None: its data is cut in another way."""
        tensors = self.tensors
        if len(tensors) == 1:  # its key is a part of `rest`, its length that of the message
            form = tensors[0]
            data = message[start + form.begin :]  # a copy: arrays want aligned memory
            return {form.name: np.ndarray(form.shape, form.dtype, data)}
        feeds: dict[str, Array] = {}
        for form in tensors:
            if not message.startswith(form.key, start + form.begin - len(form.key)):
                return None
            data = message[start + form.begin : start + form.end]
            feeds[form.name] = np.ndarray(form.shape, form.dtype, data)
        return feeds


@dataclass(slots=True)
class TemplateBook(Generic[Known]):
    """Templates of one kind of call, each with what is known of such requests."""

    _by_size: dict[int, list[_Entry[Known]]] = field(default_factory=dict)

    def add(self, template: RequestTemplate, known: Known) -> None:
        """Keep one; of those with messages of one length the oldest goes when there are too many."""
        beside = self._by_size.setdefault(template.size, [])
        beside.append(_Entry(template, template.head + template.rest, known))
        if len(beside) > _MOST_PER_SIZE:
            del beside[0]

    def find(self, message: bytes) -> tuple[Known, bytes, Mapping[str, Array]] | None:
        """What is known of a message's form, its id (the whole field; empty: none) and its inputs; None: nothing."""
        for entry in self._by_size.get(len(message), ()):
            if message.startswith(entry.plain):
                template = entry.template
                feeds = template.feeds(message, template.start)
                if feeds is not None:
                    return entry.known, b"", feeds
        span = id_span(message)
        if span is None:
            return None
        begin, end = span
        for entry in self._by_size.get(len(message) - (end - begin), ()):
            template = entry.template
            if (
                len(template.head) == begin
                and message.startswith(template.head)
                and message.startswith(template.rest, end)
            ):
                feeds = template.feeds(message, template.start + (end - begin))
                if feeds is not None:
                    return entry.known, message[begin:end], feeds
        return None


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Known]):
    template: RequestTemplate
    plain: bytes  # how a message without id begins
    known: Known


def id_span(message: bytes) -> tuple[int, int] | None:
    """Where the field of a short ASCII id lies behind those of model and version; None: there is none such."""
    try:
        if message[0] != _NAME_KEY or message[1] >= _ONE_BYTE:
            return None
        begin = 2 + message[1]
        if message[begin] == _VERSION_KEY:
            if message[begin + 1] >= _ONE_BYTE:
                return None
            begin += 2 + message[begin + 1]
        if message[begin] != _ID_KEY or not 0 < message[begin + 1] < _ONE_BYTE:
            return None
        end = begin + 2 + message[begin + 1]
    except IndexError:
        return None
    return (begin, end) if message[begin + 2 : end].isascii() else None


def template_of(head: bytes, rest: bytes, tensors: Sequence[RawTensor]) -> RequestTemplate:
    """A form from the parts of a message: model and version, what follows the id but is no data, the data's tensors."""
    forms, place = [], 0
    for tensor in tensors:
        key = RAW_KEY + varint(tensor.size)
        begin = place + len(key)
        place = begin + tensor.size
        forms.append(TensorForm(tensor.name, tensor.dtype, tensor.shape, key, begin, place))
    return RequestTemplate(
        head=head,
        rest=rest + forms[0].key,
        tensors=tuple(forms),
        start=len(head) + len(rest),
        size=len(head) + len(rest) + place,
    )


def varint(number: int) -> bytes:
    """A length as protobuf writes it."""
    out = bytearray()
    while number >= _ONE_BYTE:
        out.append(number & 0x7F | _ONE_BYTE)
        number >>= 7
    out.append(number)
    return bytes(out)
