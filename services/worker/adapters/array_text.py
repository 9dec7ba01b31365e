"""Arrays in JSON between this program's own processes."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from services.worker.domain.contents import Array
from services.worker.domain.datatype import BY_NAME, BYTES

_NAMES = {datatype.dtype: name for name, datatype in BY_NAME.items()}


def written(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Arrays by name as JSON values."""
    return {
        name: {
            "datatype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data": [str(text) for text in array.ravel()]
            if array.dtype == BYTES.dtype
            else base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
        }
        for name, array in arrays.items()
    }


def read(said: Mapping[str, Any]) -> dict[str, Array]:
    """What `written` made of arrays."""
    return {name: _array(value) for name, value in said.items()}


def _array(said: Mapping[str, Any]) -> Array:
    shape, datatype = tuple(said["shape"]), BY_NAME[said["datatype"]]
    if datatype is BYTES:
        made = np.empty(len(said["data"]), dtype=object)
        made[:] = said["data"]
        return made.reshape(shape)
    return np.frombuffer(base64.b64decode(said["data"]), datatype.dtype).reshape(shape)
