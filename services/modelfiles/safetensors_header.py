"""The header of a `safetensors` file, read with every length checked against the bytes that are there."""

import json
import math
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from services.modelfiles.errors import ModelFileError
from services.modelfiles.tensor_info import TensorInfo, TensorType

MAX_HEADER_BYTES = 100 * 1000**2  # as the format's own library has it
_MOST_SIZES = 8
_SIZE_BITS = 63  # JSON's numbers may have any length
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_TYPES = {kind.name: kind for kind in (TensorType.F32, TensorType.F16, TensorType.BF16)}


def read_tensors(path: Path, name: str) -> dict[str, TensorInfo]:
    """The tensors of one file, which is called `name` in the model. Raises ModelFileError, OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        most = max(0, min(MAX_HEADER_BYTES, size - _LENGTH_BYTES))
        if not 2 <= length <= most:
            raise ModelFileError(f"{name}: header", f"{length} bytes", f"2 to {most} in this file")
        header = _parsed(name, file.read(length))
    begin = _LENGTH_BYTES + length
    tensors = {
        key: _tensor(name, path, key, (value, begin, size))
        for key, value in header.items()
        if key != _METADATA
    }
    _check_places(name, tensors)
    return tensors


def _parsed(name: str, text: bytes) -> Mapping[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name}: header", f"no JSON ({error})", "JSON") from None
    if not isinstance(header, dict):
        raise ModelFileError(f"{name}: header", type(header).__name__, "a JSON object")
    return header


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _tensor(name: str, path: Path, key: str, said: tuple[Any, int, int]) -> TensorInfo:
    value, begin, size = said
    place = f"{name}: tensor {key[:200]!a}"
    match value:
        case {"dtype": str(kind), "shape": [*shape], "data_offsets": [int(first), int(end)]}:
            pass
        case _:
            raise ModelFileError(place, "is not described", "dtype, shape, data_offsets")
    if not 0 < len(shape) <= _MOST_SIZES or not all(_is_size(one) for one in shape):
        allowed = f"1 to {_MOST_SIZES} sizes above 0, below 2**{_SIZE_BITS}"
        raise ModelFileError(place, f"shape {str(shape[:_MOST_SIZES])[:100]}", allowed)
    if not 0 <= first <= end <= size - begin:
        raise ModelFileError(
            place,
            f"bytes {first} to {end} of {size - begin}",
            "a file that is not cut off",
        )
    known = _TYPES.get(kind)
    if known is not None and math.prod(shape) * known.block_bytes != end - first:
        raise ModelFileError(
            place,
            f"{end - first} bytes",
            f"{math.prod(shape) * known.block_bytes}, as its shape is {shape} and its type {kind}",
        )
    return TensorInfo(key, kind[:32], known, tuple(shape), path, begin + first)


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0 and value.bit_length() <= _SIZE_BITS


def _check_places(name: str, tensors: Mapping[str, TensorInfo]) -> None:
    known = sorted((t for t in tensors.values() if t.type is not None), key=lambda t: t.offset)
    for one, following in pairwise(known):
        if one.offset + one.size_bytes > following.offset:
            raise ModelFileError(
                f"{name}: tensor {following.name!a}",
                f"begins inside {one.name!a}",
                "bytes of its own",
            )
