"""Datatypes of the Open Inference Protocol: how each is stored, and which typed contents field carries it."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class Datatype:
    """One datatype as the protocol names it."""

    name: str
    dtype: np.dtype  # of arrays in memory; BYTES are arrays of str, as ONNX strings are UTF-8
    size: int  # bytes of one element in raw form; 0: each element has its own length
    contents_field: str | None  # of InferTensorContents; None: raw only

    @property
    def is_integer(self) -> bool:
        """Whether elements are whole numbers with a range."""
        return self.dtype.kind in "iu"

    @property
    def takes_any_bytes(self) -> bool:
        """Whether any bytes of the right number are elements of it."""
        return self.size > 0 and self.dtype.kind != "b"

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest element of an integer datatype."""
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)


def _fixed(name: str, dtype: np.typing.DTypeLike, field: str | None) -> Datatype:
    # Raw contents are little-endian whatever the machine is.
    kind = np.dtype(dtype)
    return Datatype(
        name, kind.newbyteorder("<") if kind.isbuiltin == 1 else kind, kind.itemsize, field
    )


BYTES = Datatype("BYTES", np.dtype(object), 0, "bytes_contents")
BF16 = _fixed("BF16", ml_dtypes.bfloat16, None)
FP16 = _fixed("FP16", np.float16, None)
BOOL = _fixed("BOOL", np.bool_, "bool_contents")

BY_NAME: dict[str, Datatype] = {
    datatype.name: datatype
    for datatype in (
        BOOL,
        _fixed("UINT8", np.uint8, "uint_contents"),
        _fixed("UINT16", np.uint16, "uint_contents"),
        _fixed("UINT32", np.uint32, "uint_contents"),
        _fixed("UINT64", np.uint64, "uint64_contents"),
        _fixed("INT8", np.int8, "int_contents"),
        _fixed("INT16", np.int16, "int_contents"),
        _fixed("INT32", np.int32, "int_contents"),
        _fixed("INT64", np.int64, "int64_contents"),
        FP16,
        _fixed("FP32", np.float32, "fp32_contents"),
        _fixed("FP64", np.float64, "fp64_contents"),
        BYTES,
        BF16,
    )
}
