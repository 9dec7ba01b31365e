"""Typed contents: the repeated fields of `InferTensorContents`, checked for field, count and range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.worker.domain.contents import Array, ContentsError, Wanted
from services.worker.domain.datatype import BYTES
from services.worker.domain.raw_contents import utf8


@dataclass(frozen=True, slots=True)
class TypedContents:
    """The non-empty fields of one tensor's contents."""

    fields: Mapping[str, Sequence[Any]]  # by name, for example `fp32_contents`
    field: str  # where they came from, for example `inputs[0].contents`

    def array(self, wanted: Wanted) -> Array:
        """The elements in the wanted shape."""
        values = self._values(wanted)
        if len(values) != wanted.count:
            raise ContentsError(
                self.field,
                f"{len(values)} elements given; allowed: {wanted.count}"
                f" ({wanted.datatype.name} {list(wanted.shape)})",
            )
        if wanted.datatype is BYTES:
            strings = np.empty(wanted.count, dtype=object)
            for index, element in enumerate(values):
                strings[index] = utf8(element, self.field, index)
            return strings.reshape(wanted.shape)
        return self._numbers(values, wanted)

    def _values(self, wanted: Wanted) -> Sequence[Any]:
        allowed = wanted.datatype.contents_field
        if allowed is None:
            raise ContentsError(
                self.field,
                f"typed contents have no field for {wanted.datatype.name};"
                " allowed: raw_input_contents",
            )
        others = sorted(self.fields.keys() - {allowed})
        if others:
            raise ContentsError(
                self.field,
                f"{', '.join(others)} given for {wanted.datatype.name}; allowed: {allowed}",
            )
        return self.fields.get(allowed, ())

    def _numbers(self, values: Sequence[Any], wanted: Wanted) -> Array:
        datatype = wanted.datatype
        if (
            not datatype.is_integer or datatype.size >= 4
        ):  # the field's own type has the right range
            return np.array(values, datatype.dtype).reshape(wanted.shape)
        wide = np.array(values, np.int64)
        low, high = datatype.bounds
        wrong = (wide < low) | (wide > high)
        if wrong.any():
            index = int(wrong.argmax())
            raise ContentsError(
                self.field,
                f"{wide[index]} at element {index}; allowed for {datatype.name}: {low} to {high}",
            )
        return wide.astype(datatype.dtype).reshape(wanted.shape)
