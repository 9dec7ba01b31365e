"""JSON data of one tensor: nested as the shape or flat, checked for nesting, type and range."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from services.worker.domain.contents import Array, ContentsError, Wanted, shown
from services.worker.domain.datatype import BF16, BOOL, BYTES, FP16, Datatype

_EXACT = 2**53  # largest whole number up to which a double, JSON's number, holds every one

_WORDS = {
    "b": "booleans",
    "i": "whole numbers",
    "u": "whole numbers",
    "f": "numbers",
    "U": "strings",
}


@dataclass(frozen=True, slots=True)
class JsonContents:
    """The parsed `data` of one tensor."""

    data: Any
    field: str  # where it came from, for example `inputs[0].data`

    def array(self, wanted: Wanted) -> Array:
        """The elements in the wanted shape."""
        given = self._strings() if wanted.datatype is BYTES else self._numbers(wanted.datatype)
        shape = given.shape
        if shape != wanted.shape and (given.ndim > 1 or given.size != wanted.count):
            raise ContentsError(
                self.field,
                f"nesting {list(shape)} given; allowed: {list(wanted.shape)},"
                f" or a flat list of {wanted.count}",
            )
        return given.reshape(wanted.shape)

    def _strings(self) -> Array:
        try:
            given = np.array(self.data, dtype=object)
        except ValueError as error:
            raise self._ragged() from error
        for index, element in enumerate(given.ravel()):
            if not isinstance(element, str):
                if isinstance(element, list):
                    raise self._ragged()
                raise ContentsError(
                    self.field, f"{shown(element)} at element {index}; allowed for BYTES: strings"
                )
        return given

    def _numbers(self, datatype: Datatype) -> Array:
        try:
            given = np.array(self.data)
        except (ValueError, OverflowError) as error:
            raise self._ragged() from error
        if not given.size:
            return given.astype(datatype.dtype)
        if datatype is BOOL:
            return self._bools(given)
        if given.dtype.kind not in "iuf":
            raise self._wrong_type(given, datatype, "numbers")
        if datatype.is_integer:
            return self._integers(given, datatype)
        return self._floats(given, datatype)

    def _bools(self, given: Array) -> Array:
        if given.dtype.kind == "b":
            return given
        if given.dtype.kind in "iu" and ((given == 0) | (given == 1)).all():
            return given.astype(np.bool_)
        raise self._wrong_type(given, BOOL, "true and false (or 1 and 0)")

    def _integers(self, given: Array, datatype: Datatype) -> Array:
        low, high = datatype.bounds
        if given.dtype.kind == "f" and datatype.size == 8:
            given = self._exact(given)
        if given.dtype.kind == "f":
            # A list that mixes whole numbers and others arrives as doubles here.
            wrong = (given != np.floor(given)) | (np.abs(given) > _EXACT)
        else:
            wrong = np.zeros(given.shape, np.bool_)
        wrong |= (given < low) | (given > high)
        if wrong.any():
            index = int(wrong.argmax())
            raise ContentsError(
                self.field,
                f"{given.ravel()[index]} at element {index}; allowed for {datatype.name}:"
                f" whole numbers from {low} to {high}",
            )
        return given.astype(datatype.dtype)

    def _exact(self, given: Array) -> Array:
        """Whole numbers beyond 2^63 beside smaller ones: NumPy makes doubles of them, which lose digits."""
        whole = np.array(self.data, dtype=object)
        if not all(type(element) is int for element in whole.ravel()):
            return given
        try:
            return whole.astype(np.uint64)
        except OverflowError:  # one is negative
            return given

    def _floats(self, given: Array, datatype: Datatype) -> Array:
        with np.errstate(over="ignore"):
            converted = given.astype(np.float64).astype(datatype.dtype)
        wide = converted.astype(np.float64) if datatype in (BF16, FP16) else converted
        wrong = ~np.isfinite(wide)
        if wrong.any():
            index = int(wrong.argmax())
            raise ContentsError(
                self.field,
                f"{given.ravel()[index]} at element {index} is beyond the range of {datatype.name}",
            )
        return converted

    def _ragged(self) -> ContentsError:
        return ContentsError(
            self.field,
            "lists of different lengths or depths given; allowed: nested as the shape, or flat",
        )

    def _wrong_type(self, given: Array, datatype: Datatype, allowed: str) -> ContentsError:
        found = _WORDS.get(given.dtype.kind, "something else")
        for index, element in enumerate(given.ravel() if given.dtype.kind == "O" else ()):
            if not isinstance(element, int | float):
                found = f"{shown(element)} at element {index}"
                break
        return ContentsError(self.field, f"{found} given; allowed for {datatype.name}: {allowed}")


class NotFiniteError(Exception):
    """An output holds NaN or infinity, which JSON cannot carry."""


def to_json(array: Array) -> Any:
    """An output as what orjson writes (with OPT_SERIALIZE_NUMPY): flat. Raises NotFiniteError."""
    flat = array.ravel()
    if flat.dtype == object:
        return flat.tolist()
    if flat.dtype == BF16.dtype:
        flat = flat.astype(np.float32)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise NotFiniteError
    return np.ascontiguousarray(flat)
