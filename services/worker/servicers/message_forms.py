"""Forms of messages that the general way has read or written once: what may be repeated byte by byte.

A form is taken only from a message whose bytes are exactly those that protobuf writes for its parts; all others are
read and written by `grpc_messages` each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference import open_inference_pb2 as oip

from services.worker.domain.contents import Array
from services.worker.domain.grpc_message import prefix
from services.worker.domain.request_template import (
    RAW_KEY,
    RawTensor,
    RequestTemplate,
    template_of,
    varint,
)
from services.worker.domain.signature import Signature

_ANSWER_RAW_KEY = b"\x32"  # field 6 of an answer: raw data
_LARGEST = 4096  # bytes of a form


def request_form(
    signature: Signature, request: oip.ModelInferRequest, message: bytes
) -> tuple[RequestTemplate, oip.ModelInferRequest] | None:
    """The form of a request that was found right, and the request without id and data; None: it has none to repeat."""
    raws = request.raw_input_contents
    datatypes = [signature.inputs[signature.input_index[t.name]].datatype for t in request.inputs]
    if not raws or not all(datatype.takes_any_bytes for datatype in datatypes) or not all(raws):
        return None
    bare = without_data(request)
    head, whole = _head(oip.ModelInferRequest, request), bare.SerializeToString()
    if len(whole) > _LARGEST or not whole.startswith(head):
        return None
    rest = whole[len(head) :]
    ident = ident_field(request.id)
    data = b"".join(RAW_KEY + varint(len(raw)) + raw for raw in raws)
    if message != b"".join((head, ident, rest, data)):
        return None
    tensors = [
        RawTensor(tensor.name, datatype.dtype, tuple(tensor.shape), len(raw))
        for tensor, datatype, raw in zip(request.inputs, datatypes, raws, strict=True)
    ]
    return template_of(head, rest, tensors), bare


def without_data(request: oip.ModelInferRequest) -> oip.ModelInferRequest:
    """What requests of one form have in common."""
    bare = oip.ModelInferRequest()
    bare.CopyFrom(request)
    bare.id = ""
    del bare.raw_input_contents[:]
    return bare


def ident_field(ident: str) -> bytes:
    """An id as both messages have it; nothing if it is empty."""
    if not ident:
        return b""
    encoded = ident.encode()
    return b"\x1a" + varint(len(encoded)) + encoded


@dataclass(frozen=True, slots=True)
class Layout:
    """Outputs of a run but for their rows."""

    outputs: tuple[tuple[str, str, tuple[int, ...]], ...]  # name, dtype, shape of a row

    @classmethod
    def of(cls, outputs: Mapping[str, Array]) -> Layout | None:
        """None: their bytes can't be cut by rows."""
        if any(a.dtype.hasobject or not a.ndim for a in outputs.values()):
            return None
        return cls(tuple((name, a.dtype.str, a.shape[1:]) for name, a in outputs.items()))


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The bytes of an answer but for its id and data."""

    layout: Layout
    head: bytes  # model and version
    rest: bytes  # what follows the id, up to and with the first data's key
    plain: bytes  # with the gRPC prefix, all of an answer without id that precedes the data
    outputs: tuple[
        tuple[str, bytes, int], ...
    ]  # name, what precedes its data if it isn't the first, size
    size: int  # bytes without id

    def framed(self, ident: bytes, blobs: Mapping[str, bytes], row: int, rows: int) -> bytes:
        """An answer with its gRPC prefix: rows from `row` on of each output's bytes."""
        parts = (
            [self.plain]
            if not ident
            else [prefix(self.size + len(ident)), self.head, ident, self.rest]
        )
        for name, key, size in self.outputs:
            begin = row * (size // rows)
            parts += (key, blobs[name][begin : begin + size])
        return b"".join(parts)


def answer_form(layout: Layout, answer: oip.ModelInferResponse) -> AnswerForm | None:
    """The form of an answer that has no id; None: there is none to repeat."""
    raws: Sequence[bytes] = answer.raw_output_contents
    whole, head = answer.SerializeToString(), _head(oip.ModelInferResponse, answer)
    keys = [_ANSWER_RAW_KEY + varint(len(raw)) for raw in raws]
    data = b"".join(key + raw for key, raw in zip(keys, raws, strict=True))
    if not raws or not all(raws) or not (whole.startswith(head) and whole.endswith(data)):
        return None
    rest = whole[len(head) : len(whole) - len(data)] + keys[0]
    names = [output.name for output in answer.outputs]
    return AnswerForm(
        layout=layout,
        head=head,
        rest=rest,
        plain=prefix(len(whole)) + head + rest,
        outputs=tuple(zip(names, [b"", *keys[1:]], map(len, raws), strict=True)),
        size=len(whole),
    )


def _head(
    kind: type[oip.ModelInferRequest | oip.ModelInferResponse],
    message: oip.ModelInferRequest | oip.ModelInferResponse,
) -> bytes:
    return kind(
        model_name=message.model_name, model_version=message.model_version
    ).SerializeToString()
