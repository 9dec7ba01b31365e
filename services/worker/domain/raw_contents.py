"""Raw contents: row-major little-endian bytes; BYTES elements each after a 4-byte length."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from services.worker.domain.contents import Array, ContentsError, Wanted
from services.worker.domain.datatype import BOOL, BYTES

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class RawContents:
    """One tensor's bytes as they came."""

    data: bytes | memoryview
    field: str  # where they came from, for example `raw_input_contents[0]`

    def array(self, wanted: Wanted) -> Array:
        """A view of the bytes (BYTES: decoded strings) in the wanted shape."""
        datatype = wanted.datatype
        if datatype is BYTES:
            return self._strings(wanted)
        expected = wanted.count * datatype.size
        if len(self.data) != expected:
            raise ContentsError(
                self.field,
                f"{len(self.data)} bytes given; allowed: {expected}"
                f" ({datatype.name} {list(wanted.shape)})",
            )
        if not expected:
            return np.empty(wanted.shape, datatype.dtype)
        if datatype is BOOL:
            self._check_bools()
        return np.frombuffer(self.data, datatype.dtype).reshape(wanted.shape)

    def _check_bools(self) -> None:
        # Anything but 0 and 1 in a bool is undefined behaviour in the kernels.
        wrong = np.frombuffer(self.data, np.uint8) > 1
        if wrong.any():
            index = int(wrong.argmax())
            raise ContentsError(
                self.field, f"byte {self.data[index]} at element {index}; allowed: 0 or 1"
            )

    def _strings(self, wanted: Wanted) -> Array:
        size = len(self.data)
        if size < _LENGTH.size * wanted.count:
            raise ContentsError(
                self.field,
                f"{size} bytes given; allowed: at least {_LENGTH.size * wanted.count}"
                f" (a 4-byte length for each of {wanted.count} elements)",
            )
        strings = np.empty(wanted.count, dtype=object)
        offset = 0
        for index in range(wanted.count):
            start = offset + _LENGTH.size
            length = _LENGTH.unpack_from(self.data, offset)[0] if start <= size else size
            offset = start + length
            if offset > size:
                raise ContentsError(
                    self.field,
                    f"element {index} has length {length}; allowed: at most"
                    f" {max(0, size - start)}, the bytes that are left",
                )
            strings[index] = utf8(self.data[start:offset], self.field, index)
        if offset != size:
            raise ContentsError(
                self.field, f"{size - offset} bytes after the last element; allowed: none"
            )
        return strings.reshape(wanted.shape)


def utf8(data: bytes | memoryview, field: str, index: int) -> str:
    """An element of a string tensor, which ONNX defines as UTF-8."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ContentsError(
            field,
            f"element {index} is not UTF-8 ({error.reason} at byte {error.start});"
            " allowed: UTF-8, the encoding of ONNX strings",
        ) from error


def to_raw(array: Array) -> bytes:
    """An output's bytes in raw form."""
    if array.dtype == object:
        return b"".join(_with_length(element) for element in array.ravel())
    return array.tobytes()


def raw_size(arrays: Iterable[Array]) -> int:
    """About how many bytes arrays occupy; strings count with their characters."""
    total = 0
    for array in arrays:
        if array.dtype == object:
            total += sum(len(element) + _LENGTH.size for element in array.ravel())
        else:
            total += array.nbytes
    return total


def _with_length(element: str) -> bytes:
    encoded = element.encode()
    return _LENGTH.pack(len(encoded)) + encoded
