"""REST bodies in and out, also as a real client writes and reads them."""

import gzip
import zlib
from typing import Any

import numpy as np
import orjson
import pytest
import tritonclient.http as triton

from services.rpc.errors import InvalidArgumentError, ResourceExhaustedError
from services.worker.domain import rest_response
from services.worker.domain.infer_request import read_inputs
from services.worker.domain.rest_request import RestRequest, decompress, parse
from services.worker.domain.rest_response import Answered
from services.worker.domain.signature import Signature, spec_of

SIGNATURE = Signature(
    (spec_of("x", "FP32", (-1, 2)), spec_of("t", "BYTES", (-1,))),
    (spec_of("y", "FP32", (-1, 2)), spec_of("s", "BYTES", (-1,)), spec_of("b", "BF16", (-1,))),
)
X = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}


def body(**said: Any) -> bytes:
    return orjson.dumps({"inputs": [X], **said})


def refused(data: bytes, length: str | None = None) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as caught:
        parse(data, length)
    return {v.field: v.description for v in caught.value.violations}


def test_json_alone() -> None:
    """Without the length header all of the body is JSON; outputs are JSON then."""
    request = parse(body(id="7", outputs=[{"name": "y"}], parameters={"later": 1}), None)
    assert request.id == "7"
    assert request.outputs == ["y"]
    assert not request.wants_binary("y")


def test_binary_outputs_by_default_and_by_output() -> None:
    """An output's own word wins over the request's."""
    request = parse(
        body(
            parameters={"binary_data_output": True},
            outputs=[{"name": "y", "parameters": {"binary_data": False}}, {"name": "s"}],
        ),
        None,
    )
    assert not request.wants_binary("y")
    assert request.wants_binary("s")


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        pytest.param(b"", "http_body", "empty", id="empty"),
        pytest.param(b"{", "http_body", "line 1 column", id="cut"),
        pytest.param(b"[1]", "http_body", "a JSON object", id="no object"),
        pytest.param(b'{"inputs": [NaN]}', "http_body", "NaN at line 1 column 13", id="NaN"),
        pytest.param(b'{"a": -Infinity}', "http_body", "finite numbers", id="Infinity"),
        pytest.param(b'{"a": "\xff"}', "http_body", "UTF-8", id="not UTF-8"),
        pytest.param(b'{"inputs": [1e999]}', "http_body", "infinity", id="1e999"),
        pytest.param(b'{"inputs": []} x', "http_body", "line 1 column 16", id="trailing"),
        pytest.param(b"[" * 5000, "http_body", "not valid JSON", id="depth"),
        pytest.param(b"{}", "inputs", "missing; allowed: a list", id="no inputs"),
        pytest.param(body(inputs=5), "inputs", "5 given", id="inputs no list"),
        pytest.param(body(inputs=[5]), "inputs[0]", "5 given; allowed: an object", id="input"),
        pytest.param(body(inputs=[{**X, "name": 1}]), "inputs[0].name", "a string", id="name"),
        pytest.param(body(inputs=[{**X, "shape": [1.0]}]), "inputs[0].shape", "whole", id="shape"),
        pytest.param(body(inputs=[{**X, "shape": [True]}]), "inputs[0].shape", "whole", id="bool"),
        pytest.param(
            body(inputs=[{"name": "x", "datatype": "FP32", "shape": [1]}]),
            "inputs[0].data",
            "missing",
            id="no data",
        ),
        pytest.param(
            body(inputs=[{**X, "parameters": {"binary_data_size": 8}}]),
            "inputs[0].parameters.binary_data_size",
            "one of them",
            id="data twice",
        ),
        pytest.param(body(id=5), "id", "a string", id="id"),
        pytest.param(body(outputs=[{}]), "outputs[0].name", "missing", id="output name"),
        pytest.param(
            body(parameters={"binary_data_output": 1}),
            "parameters.binary_data_output",
            "true or false",
            id="flag",
        ),
    ],
)
def test_refused_bodies(data: bytes, field: str, words: str) -> None:
    """Each mistake is named by its field, or by its line and column."""
    assert words in refused(data)[field]


BINARY = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}


@pytest.mark.parametrize(
    ("length", "tail", "field"),
    [
        pytest.param("x", bytes(8), "Inference-Header-Content-Length", id="no number"),
        pytest.param("0", bytes(8), "Inference-Header-Content-Length", id="zero"),
        pytest.param("99999", bytes(8), "Inference-Header-Content-Length", id="beyond the body"),
        pytest.param("9" * 6000, bytes(8), "Inference-Header-Content-Length", id="6000 digits"),
        pytest.param("-1", bytes(8), "Inference-Header-Content-Length", id="negative"),
        pytest.param(None, b"", "inputs[0].parameters.binary_data_size", id="no header"),
        pytest.param("", bytes(7), "inputs[0].parameters.binary_data_size", id="too few bytes"),
        pytest.param("", bytes(9), "http_body", id="too many bytes"),
    ],
)
def test_refused_binary_bodies(length: str | None, tail: bytes, field: str) -> None:
    """The header and the sizes must add up to the body ("" stands for the right length)."""
    text = orjson.dumps({"inputs": [BINARY]})
    assert field in refused(text + tail, str(len(text)) if length == "" else length)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_what_tritonclient_sends_is_read(binary: bool) -> None:
    """The bodies of a real client, with binary and with JSON tensors."""
    x = triton.InferInput("x", [2, 2], "FP32")
    x.set_data_from_numpy(np.arange(4, dtype=np.float32).reshape(2, 2), binary_data=binary)
    t = triton.InferInput("t", [1], "BYTES")
    t.set_data_from_numpy(np.array(["zürich"], dtype=object), binary_data=binary)
    data, length = triton.InferenceServerClient.generate_request_body([x, t], request_id="q")
    request = parse(data, None if length is None else str(length))
    arrays = read_inputs(SIGNATURE, request.inputs, 1 << 20)
    assert arrays["x"].tolist() == [[0, 1], [2, 3]]
    assert arrays["t"].tolist() == ["zürich"]
    assert request.id == "q"
    assert request.wants_binary("y")


def answer(request: RestRequest) -> Any:
    outputs = {
        "y": np.array([[1.5, 2.5]], np.float32),
        "s": np.array(["ü"], dtype=object),
        "b": np.array([3], SIGNATURE.outputs[2].datatype.dtype),
    }
    return rest_response.write(Answered("e", "4"), request, SIGNATURE, outputs)


@pytest.mark.parametrize("binary", [{"y", "s", "b"}, {"s"}, set()], ids=["all", "one", "none"])
def test_what_is_sent_tritonclient_reads(binary: set[str]) -> None:
    """A real client finds each output, as JSON or after it."""
    request = RestRequest("q", [], [], dict.fromkeys(binary, True), binary_by_default=False)
    written = answer(request)
    assert (written.json_length is None) == (not binary)
    read = triton.InferenceServerClient.parse_response_body(
        written.body, header_length=written.json_length
    )
    assert read.as_numpy("y").tolist() == [[1.5, 2.5]]
    assert read.as_numpy("s").tolist() == [("ü".encode() if "s" in binary else "ü")]
    said = read.get_response()
    assert (said["model_name"], said["model_version"], said["id"]) == ("e", "4", "q")
    assert said["outputs"][0]["shape"] == [1, 2]


def test_json_of_an_answer_is_the_protocols() -> None:
    """Names, datatypes, shapes and flat data; no id if none was given."""
    written = answer(RestRequest(None, [], [], {}, binary_by_default=False))
    assert orjson.loads(written.body) == {
        "model_name": "e",
        "model_version": "4",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]},
            {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["ü"]},
            {"name": "b", "datatype": "BF16", "shape": [1], "data": [3.0]},
        ],
    }
    assert written.content_type == "application/json"


def test_nan_in_an_answer_is_refused_with_the_way_out() -> None:
    """JSON has no NaN; the same output as binary data passes."""
    outputs = {"y": np.array([[np.nan, 1]], np.float32)}
    request = RestRequest(None, [], [], {}, binary_by_default=False)
    with pytest.raises(InvalidArgumentError, match="binary_data"):
        rest_response.write(Answered("e", "4"), request, SIGNATURE, outputs)
    request = RestRequest(None, [], [], {}, binary_by_default=True)
    written = rest_response.write(Answered("e", "4"), request, SIGNATURE, outputs)
    assert written.content_type == "application/octet-stream"


def test_compressed_bodies() -> None:
    """Gzip and deflate are read, other encodings and bombs refused."""
    assert decompress(b"a", "", 10) == b"a"
    assert decompress(gzip.compress(b"abc"), "gzip", 10) == b"abc"
    assert decompress(zlib.compress(b"abc"), "deflate", 10) == b"abc"
    with pytest.raises(ResourceExhaustedError, match="10 bytes"):
        decompress(gzip.compress(bytes(10_000_000)), "gzip", 10)
    for data, encoding in ((b"abc", "br"), (b"abc", "gzip"), (gzip.compress(b"abc")[:-9], "gzip")):
        with pytest.raises(InvalidArgumentError):
            decompress(data, encoding, 10)
