"""The REST body of an inference: JSON, or JSON followed by the bytes of binary tensors, checked field by field."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from services.rpc.errors import (
    FieldViolation,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from services.worker.domain.contents import Contents, shown
from services.worker.domain.infer_request import GivenTensor
from services.worker.domain.json_contents import JsonContents
from services.worker.domain.raw_contents import RawContents
from services.worker.domain.request_options import PLAIN, RequestOptions, read_options

LENGTH_HEADER = "inference-header-content-length"
_BODY = "http_body"
_MOST_DIGITS = 20  # of a length
_NOT_JSON = ("NaN", "Infinity", "-Infinity", "nan", "inf")
_ENCODINGS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


@dataclass(frozen=True, slots=True)
class RestRequest:
    """What the body says."""

    id: str | None
    inputs: Sequence[GivenTensor]
    outputs: Sequence[str]  # names; empty: all
    binary_outputs: Mapping[str, bool]  # for those that say it themselves
    binary_by_default: bool
    options: RequestOptions = PLAIN

    def wants_binary(self, output: str) -> bool:
        """Whether this output goes as bytes after the JSON."""
        return self.binary_outputs.get(output, self.binary_by_default)


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body without its `Content-Encoding`, at most `max_bytes` long."""
    if encoding in ("", "identity"):
        return body
    if encoding not in _ENCODINGS:
        raise InvalidArgumentError.of_field(
            "Content-Encoding", f"{shown(encoding)} given; allowed: gzip, deflate, identity"
        )
    inflater = zlib.decompressobj(_ENCODINGS[encoding])
    try:
        data = inflater.decompress(body, max_bytes)
    except zlib.error as error:
        raise InvalidArgumentError.of_field(_BODY, f"not valid {encoding}: {error}") from error
    if inflater.unconsumed_tail:
        raise ResourceExhaustedError(
            f"the decompressed body is larger than {max_bytes} bytes, the limit of a message",
            reason="MESSAGE_TOO_LARGE",
            metadata={"limit": str(max_bytes)},
        )
    if not inflater.eof:
        raise InvalidArgumentError.of_field(_BODY, f"{encoding} data that ends too early")
    return data


def forbids_storing(cache_control: str | None) -> bool:
    """Whether `Cache-Control` has `no-store` (RFC 9111, 5.2.1.5)."""
    directives = (cache_control or "").lower().split(",")
    return any(directive.strip() == "no-store" for directive in directives)


def parse(body: bytes, json_length: str | None) -> RestRequest:
    """Read a body. Raises InvalidArgumentError with every field that is wrong.

    Args:
        body: all of it.
        json_length: the header `Inference-Header-Content-Length`; None: the body is JSON alone.
    """
    whole = memoryview(body)
    length = len(body) if json_length is None else _json_length(json_length, len(body))
    said = _object(whole[:length])
    reader = _Reader(whole[length:], has_binary=json_length is not None)
    request = reader.read(said)
    if reader.violations:
        raise InvalidArgumentError.of_fields(reader.violations)
    return request


def _json_length(header: str, body_length: int) -> int:
    # `0` means "one raw input, no JSON" elsewhere; here every request says what it brings.
    # Python reads no number of thousands of digits; none as long can be right.
    is_number = len(header) <= _MOST_DIGITS and header.isascii() and header.isdecimal()
    if not (is_number and 0 < int(header) <= body_length):
        raise InvalidArgumentError.of_field(
            "Inference-Header-Content-Length",
            f"{shown(header)} given; allowed: the JSON's length, 1 to {body_length} (the body's length)",
        )
    return int(header)


def _object(text: memoryview) -> Mapping[str, Any]:
    try:
        said = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError.of_field(_BODY, _why_not_json(error, text)) from error
    if not isinstance(said, dict):
        raise InvalidArgumentError.of_field(_BODY, f"{shown(said)} given; allowed: a JSON object")
    return said


def _why_not_json(error: orjson.JSONDecodeError, text: memoryview) -> str:
    rest = error.doc[error.pos : error.pos + 9]
    if rest.startswith(_NOT_JSON):
        return (
            f"{rest.rstrip(',]} ')} at line {error.lineno} column {error.colno} is not JSON;"
            " allowed: finite numbers, or the tensor as binary data"
        )
    if not len(text):
        return "empty; allowed: a JSON object with `inputs`"
    return f"not valid JSON: {error}"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A JSON type."""

    type: type[Any]
    words: str


_STRING = _Kind(str, "a string")
_OBJECT = _Kind(dict, "an object")
_LIST = _Kind(list, "a list")


class _Reader:
    """Walks a parsed body and collects what is wrong with it."""

    def __init__(self, binary: memoryview, *, has_binary: bool) -> None:
        self.violations: list[FieldViolation] = []
        self._binary = binary
        self._has_binary = has_binary
        self._offset = 0

    def read(self, said: Mapping[str, Any]) -> RestRequest:
        parameters = self._get(said, "parameters", "", _OBJECT, {})
        inputs = [
            self._input(f"inputs[{index}]", tensor)
            for index, tensor in enumerate(self._get(said, "inputs", "", _LIST))
        ]
        outputs = [
            self._output(f"outputs[{index}]", output)
            for index, output in enumerate(self._get(said, "outputs", "", _LIST, []))
        ]
        left = len(self._binary) - self._offset
        if left and not self.violations:
            self._wrong(_BODY, f"{left} bytes after the last tensor; allowed: none")
        return RestRequest(
            id=self._get(said, "id", "", _STRING, "") if "id" in said else None,
            inputs=[tensor for tensor in inputs if tensor is not None],
            outputs=[name for name, _ in outputs],
            binary_outputs={name: binary for name, binary in outputs if binary is not None},
            binary_by_default=self._flag(parameters, "binary_data_output", "parameters") or False,
            options=self._options(parameters),
        )

    def _options(self, parameters: Mapping[str, Any]) -> RequestOptions:
        try:
            return read_options(parameters)
        except InvalidArgumentError as error:
            self.violations += error.violations
            return PLAIN

    def _input(self, field: str, tensor: Any) -> GivenTensor | None:
        before = len(self.violations)
        tensor = self._as_object(field, tensor)
        name = self._get(tensor, "name", field, _STRING)
        datatype = self._get(tensor, "datatype", field, _STRING)
        shape = self._get(tensor, "shape", field, _LIST)
        if not all(type(dim) is int for dim in shape):
            self._wrong(f"{field}.shape", f"{shown(shape)} given; allowed: whole numbers")
        contents = self._contents(field, tensor)
        if contents is None or len(self.violations) > before:
            return None
        return GivenTensor(name, datatype, shape, contents)

    def _contents(self, field: str, tensor: Mapping[str, Any]) -> Contents | None:
        parameters = self._get(tensor, "parameters", field, _OBJECT, {})
        size = parameters.get("binary_data_size")
        if size is None:
            if "data" not in tensor:
                self._wrong(f"{field}.data", "missing; allowed: a list, or binary_data_size")
                return None
            return JsonContents(tensor["data"], f"{field}.data")
        where = f"{field}.parameters.binary_data_size"
        left = len(self._binary) - self._offset
        if "data" in tensor:
            self._wrong(where, "given beside data; allowed: one of them")
        elif not self._has_binary:
            self._wrong(where, "given without the header Inference-Header-Content-Length")
        elif type(size) is not int or not 0 <= size <= left:
            self._wrong(
                where, f"{shown(size)} given; allowed: 0 to {left}, the bytes that are left"
            )
        else:
            start, self._offset = self._offset, self._offset + size
            return RawContents(self._binary[start : self._offset], f"{field} (binary data)")
        return None

    def _output(self, field: str, output: Any) -> tuple[str, bool | None]:
        output = self._as_object(field, output)
        name = self._get(output, "name", field, _STRING)
        parameters = self._get(output, "parameters", field, _OBJECT, {})
        return name, self._flag(parameters, "binary_data", f"{field}.parameters")

    def _flag(self, parameters: Mapping[str, Any], key: str, field: str) -> bool | None:
        value = parameters.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(f"{field}.{key}", f"{shown(value)} given; allowed: true or false")
        return None

    def _as_object(self, field: str, value: Any) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong(field, f"{shown(value)} given; allowed: an object")
        return {}

    def _get(
        self, said: Mapping[str, Any], key: str, field: str, kind: _Kind, default: Any = None
    ) -> Any:
        """`said[key]` if it has the right type; otherwise its default or an empty value, and a violation."""
        if key not in said and default is not None:
            return default
        value = said.get(key)
        if isinstance(value, kind.type):
            return value
        where = f"{field}.{key}" if field else key
        given = f"{shown(value)} given" if key in said else "missing"
        self._wrong(where, f"{given}; allowed: {kind.words}")
        return kind.type()

    def _wrong(self, field: str, description: str) -> None:
        self.violations.append(FieldViolation(field, description))
