"""The header of a GGUF file, read with every count and length checked against the bytes that are there.

The `gguf` package's reader believes what it reads (a count of 2**60 is a loop of as many steps) and takes 3.7 s for a
vocabulary of 49,152; this takes 0.1 s. Its names of types are used where one is refused.
"""

import math
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from services.modelfiles.errors import ModelFileError
from services.modelfiles.tensor_info import TensorInfo, TensorType

MAX_HEADER_BYTES = 256 * 1024**2
MAX_STRINGS = 4 * 1024**2  # in all arrays: each is an object of Python's
MAX_ENTRIES = 65_536  # keys, and tensors
MAX_NAME_BYTES = 1024
MAX_DIMENSIONS = 4
_VERSIONS = (2, 3)
_MAGIC = b"GGUF"
_ALIGNMENT = "general.alignment"
_TYPES = {kind.number: kind for kind in TensorType}

_SCALARS: Mapping[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4",
    6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

Value = Any  # int, float, bool, str, list[str] or a numpy array of one dimension


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file says of itself."""

    file: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]


def read_header(path: Path) -> GgufHeader:
    """Read and check. Raises ModelFileError; OSError if the file can't be read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < len(_MAGIC):
            raise ModelFileError("file", f"{size} bytes", "a GGUF file")
        readable = min(size, MAX_HEADER_BYTES)
        with mmap.mmap(file.fileno(), readable, access=mmap.ACCESS_READ) as data:
            return _read(_Cursor(data, size), path)


def _read(cursor: "_Cursor", path: Path) -> GgufHeader:
    _check_kind(cursor)
    tensor_count = cursor.count("number of tensors", 8 + 4 + 8 + 4 + 8)
    key_count = cursor.count("number of keys", 8 + 4 + 1)
    metadata = _read_metadata(cursor, key_count)
    return GgufHeader(path, metadata, _read_tensors(cursor, tensor_count, metadata, path))


class _Cursor:
    """A place in the header; nothing is read beyond its end."""

    def __init__(self, data: mmap.mmap, file_size: int) -> None:
        self.data = data
        self.file_size = file_size
        self.at = 0
        self.strings = 0

    def take(self, what: str, length: int) -> int:
        """Go on by `length` bytes; where they begin."""
        begin, left = self.at, len(self.data) - self.at
        if length > left:
            where = f"{length} bytes at {begin}, where {left} are left"
            if len(self.data) < self.file_size:
                raise ModelFileError(what, where, f"a header of at most {MAX_HEADER_BYTES} bytes")
            raise ModelFileError(what, where, "a file that is not cut off")
        self.at = begin + length
        return begin

    def integer(self, what: str, form: str = "<I") -> int:
        begin = self.take(what, struct.calcsize(form))
        value: int = struct.unpack_from(form, self.data, begin)[0]
        return value

    def count(self, what: str, least_bytes: int) -> int:
        """A number of entries, each of which takes so many bytes at least."""
        given = self.integer(what, "<Q")
        self.check_room(what, given, MAX_ENTRIES, least_bytes)
        return given

    def check_room(self, what: str, given: int, most: int, least_bytes: int) -> None:
        """So many entries are no more than may be, nor than there are bytes for."""
        room = (len(self.data) - self.at) // least_bytes
        if given > room:
            raise ModelFileError(
                what, str(given), f"at most {room}, as the file has no room for more"
            )
        if given > most:
            raise ModelFileError(what, str(given), f"at most {most}")

    def text(self, what: str, most: int = MAX_HEADER_BYTES) -> str:
        length = self.integer(what, "<Q")
        if length > most:
            raise ModelFileError(what, f"a text of {length} bytes", f"at most {most}")
        begin = self.take(what, length)
        try:
            return self.data[begin : begin + length].decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(what, f"no UTF-8 ({error.reason})", "text in UTF-8") from None


def _check_kind(cursor: _Cursor) -> None:
    magic = cursor.data[cursor.take("magic", 4) : cursor.at]
    if magic != _MAGIC:
        raise ModelFileError("magic", ascii(magic), ascii(_MAGIC))
    version = cursor.integer("version")
    if version not in _VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise ModelFileError("byte order", "big-endian", "little-endian")
        raise ModelFileError("version", str(version), "2 or 3")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.text(f"key {index}", MAX_NAME_BYTES)
        if key in metadata:
            raise ModelFileError(f"key {key!a}", "is there twice", "once")
        metadata[key] = _read_value(cursor, key, cursor.integer(f"type of {key!a}"))
    return metadata


def _read_value(cursor: _Cursor, key: str, kind: int) -> Value:
    what = f"value of {key!a}"
    if kind == _STRING:
        return cursor.text(what)
    if kind == _ARRAY:
        return _read_array(cursor, what)
    if kind in _SCALARS:
        return _numbers(cursor, what, kind, 1)[0].item()
    raise ModelFileError(what, f"type {kind}", "types 0 to 12")


def _read_array(cursor: _Cursor, what: str) -> Value:
    kind = cursor.integer(what)
    length = cursor.integer(what, "<Q")
    if kind in _SCALARS:
        return _numbers(cursor, what, kind, length)
    if kind != _STRING:
        raise ModelFileError(what, f"an array of type {kind}", "arrays of numbers or texts")
    cursor.check_room(f"{what}, texts", length, MAX_STRINGS - cursor.strings, 8)
    cursor.strings += length
    return _texts(cursor, what, length)


def _texts(cursor: _Cursor, what: str, length: int) -> list[str]:
    """An array of texts: half a million in big vocabularies, hence without a call for each."""
    data, at, texts = cursor.data, cursor.at, []
    unpack: Callable[[mmap.mmap, int], tuple[int]] = struct.Struct("<Q").unpack_from
    end = len(data)
    for index in range(length):
        begin = at + 8
        at = begin + unpack(data, at)[0] if begin <= end else end + 1
        if at > end:
            raise ModelFileError(
                f"{what}, entry {index}", "ends beyond the file", "a file that is not cut off"
            )
        texts.append(data[begin:at].decode("utf-8", "surrogateescape"))
    cursor.at = at
    return texts


def _numbers(cursor: _Cursor, what: str, kind: int, length: int) -> np.ndarray[Any, np.dtype[Any]]:
    dtype = np.dtype(_SCALARS[kind])
    begin = cursor.take(what, length * dtype.itemsize)
    raw = cursor.data[begin : cursor.at]
    if dtype == np.bool_ and np.frombuffer(raw, np.uint8).max(initial=0) > 1:
        raise ModelFileError(what, "a byte above 1", "0 or 1")
    return np.frombuffer(raw, dtype)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int  # from the beginning of all tensors


def _read_tensors(
    cursor: _Cursor, count: int, metadata: Mapping[str, Value], path: Path
) -> dict[str, TensorInfo]:
    entries = [_read_entry(cursor, f"tensor {index}") for index in range(count)]
    alignment = _alignment(metadata)
    begin = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise ModelFileError(f"tensor {entry.name!a}", "is there twice", "once")
        if entry.offset % alignment:
            raise ModelFileError(
                f"offset of {entry.name!a}", str(entry.offset), f"multiples of {alignment}"
            )
        tensors[entry.name] = TensorInfo(
            name=entry.name,
            type_name=_type_name(entry.kind),
            type=_TYPES.get(entry.kind),
            shape=entry.shape,
            file=path,
            offset=begin + entry.offset,
        )
    _check_places(tensors, cursor.file_size)
    return tensors


def _read_entry(cursor: _Cursor, what: str) -> _Entry:
    name = cursor.text(f"name of {what}", MAX_NAME_BYTES)
    dimensions = cursor.integer(f"dimensions of {name!a}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ModelFileError(f"dimensions of {name!a}", str(dimensions), f"1 to {MAX_DIMENSIONS}")
    sizes = [cursor.integer(f"shape of {name!a}", "<Q") for _ in range(dimensions)]
    if 0 in sizes:
        raise ModelFileError(f"shape of {name!a}", str(sizes[::-1]), "no size of 0")
    kind = cursor.integer(f"type of {name!a}")
    offset = cursor.integer(f"offset of {name!a}", "<Q")
    return _Entry(name, tuple(reversed(sizes)), kind, offset)


def _alignment(metadata: Mapping[str, Value]) -> int:
    given = metadata.get(_ALIGNMENT, 32)
    if not isinstance(given, int) or not 1 <= given <= 1024**2 or given & (given - 1):
        raise ModelFileError(_ALIGNMENT, str(given), "powers of two up to 1048576")
    return given


def _type_name(kind: int) -> str:
    if kind in _TYPES:
        return _TYPES[kind].name
    from gguf.constants import GGMLQuantizationType  # a quarter of a second, for the message only

    try:
        return str(GGMLQuantizationType(kind).name)
    except ValueError:
        return f"number {kind}"


def _check_places(tensors: Mapping[str, TensorInfo], file_size: int) -> None:
    known = sorted((t for t in tensors.values() if t.type is not None), key=lambda t: t.offset)
    for tensor in known:
        assert tensor.type is not None
        if tensor.shape[-1] % tensor.type.block:
            raise ModelFileError(
                f"shape of {tensor.name!a}",
                str(list(tensor.shape)),
                f"rows of a multiple of {tensor.type.block}, as it has type {tensor.type_name}",
            )
        end = tensor.offset + tensor.size_bytes
        if math.prod(tensor.shape) >= 2**62 or end > file_size:
            raise ModelFileError(
                f"tensor {tensor.name!a}",
                f"bytes {tensor.offset} to {end} of a file of {file_size}",
                "a file that is not cut off",
            )
    for one, following in pairwise(known):
        if one.offset + one.size_bytes > following.offset:
            raise ModelFileError(
                f"tensor {following.name!a}",
                f"begins at {following.offset}, inside {one.name!a}",
                "bytes of its own",
            )
