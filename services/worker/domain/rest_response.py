"""The REST body of an answer: JSON, and after it the bytes of outputs that are wanted as binary data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.contents import Array
from services.worker.domain.json_contents import NotFiniteError, to_json
from services.worker.domain.raw_contents import to_raw
from services.worker.domain.rest_request import RestRequest
from services.worker.domain.signature import Signature


@dataclass(frozen=True, slots=True)
class RestResponse:
    """A body and how it is to be read."""

    body: bytes
    json_length: int | None  # None: the body is JSON alone

    @property
    def content_type(self) -> str:
        """As OIP clients expect it."""
        return "application/json" if self.json_length is None else "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Answered:
    """Which model answered."""

    model_name: str  # as the client called it
    model_version: str  # that computed
    parameters: Mapping[str, bool | int] = field(default_factory=dict)


def write(
    answered: Answered, request: RestRequest, signature: Signature, outputs: Mapping[str, Array]
) -> RestResponse:
    """The answer's body. Raises InvalidArgumentError if JSON cannot carry an output's numbers."""
    tensors: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for name, array in outputs.items():
        datatype = signature.outputs[signature.output_index[name]].datatype
        tensor: dict[str, Any] = {"name": name, "datatype": datatype.name, "shape": array.shape}
        if request.wants_binary(name):
            blobs.append(to_raw(array))
            tensor["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            tensor["data"] = _data(name, array)
        tensors.append(tensor)
    said: dict[str, Any] = {
        "model_name": answered.model_name,
        "model_version": answered.model_version,
        "outputs": tensors,
    }
    if answered.parameters:
        said["parameters"] = answered.parameters
    if request.id is not None:
        said["id"] = request.id
    text = orjson.dumps(said, option=orjson.OPT_SERIALIZE_NUMPY)
    if not blobs:
        return RestResponse(text, None)
    return RestResponse(b"".join((text, *blobs)), len(text))


def _data(name: str, array: Array) -> Any:
    try:
        return to_json(array)
    except NotFiniteError as error:
        raise InvalidArgumentError(
            f"output {name!r} holds NaN or infinity, which JSON cannot carry;"
            ' allowed: ask for it as binary data ("parameters": {"binary_data": true})',
            reason="NOT_FINITE",
            metadata={"output": name},
        ) from error
