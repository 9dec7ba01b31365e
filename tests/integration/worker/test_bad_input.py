"""Bad input to a real worker: each gets its status with the field named, and the process stays the same."""

import struct
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import orjson
import pytest
from inference import open_inference_pb2 as oip

from tests.integration.worker.conftest import Home
from tests.integration.worker.oip_client import Client, details, output, request
from tests.integration.worker.worker_process import running
from tests.models import artifact, good

pytestmark = pytest.mark.usefixtures("both_fronts")

ADD, TEXT = "models/add/versions/1", "models/text/versions/1"
A = np.ones((1, 2), np.float32)


def add(**changes: Any) -> oip.ModelInferRequest:
    return request("add", **{"a": A, "b": A, **changes})


def changed(change: Callable[[oip.ModelInferRequest], Any]) -> oip.ModelInferRequest:
    made = add()
    change(made)
    return made


def shape(*dims: int) -> oip.ModelInferRequest:
    def change(made: oip.ModelInferRequest) -> None:
        made.inputs[0].shape[:] = dims

    return changed(change)


def text(data: bytes, *dims: int) -> oip.ModelInferRequest:
    made = oip.ModelInferRequest(model_name="text", raw_input_contents=[data])
    made.inputs.add(name="x", datatype="BYTES", shape=dims or (1,))
    return made


def typed(datatype: str, **contents: Any) -> oip.ModelInferRequest:
    made = oip.ModelInferRequest(model_name="add")
    for name in ("a", "b"):
        made.inputs.add(
            name=name,
            datatype=datatype,
            shape=[1, 2],
            contents=oip.InferTensorContents(**contents),
        )
    return made


def beside(made: oip.ModelInferRequest) -> None:
    made.inputs[1].contents.fp32_contents.extend([1, 2])


GRPC: dict[str, tuple[oip.ModelInferRequest, str, str]] = {
    "unknown version": (changed(lambda r: setattr(r, "model_version", "9")), "NOT_FOUND", ""),
    "wrong dtype": (
        changed(lambda r: setattr(r.inputs[0], "datatype", "FP64")),
        "INVALID_ARGUMENT",
        "inputs[0].datatype",
    ),
    "wrong rank": (shape(2), "INVALID_ARGUMENT", "inputs[0].shape"),
    "wrong fixed dimension": (shape(1, 3), "INVALID_ARGUMENT", "inputs[0].shape"),
    "missing input": (request("add", a=A), "INVALID_ARGUMENT", "inputs"),
    "extra input": (add(c=A), "INVALID_ARGUMENT", "inputs[2].name"),
    "raw too short": (
        changed(lambda r: r.raw_input_contents.__setitem__(0, b"123")),
        "INVALID_ARGUMENT",
        "raw_input_contents[0]",
    ),
    "raw mixed with typed": (changed(beside), "INVALID_ARGUMENT", "inputs[1].contents"),
    "raw for one of two": (
        changed(lambda r: r.raw_input_contents.pop()),
        "INVALID_ARGUMENT",
        "raw_input_contents",
    ),
    "shape overflow": (shape(1 << 62, 2), "INVALID_ARGUMENT", "inputs[0].shape"),
    "overflow to zero": (shape(1 << 32, 1 << 32), "INVALID_ARGUMENT", "inputs[0].shape"),
    "negative shape": (shape(-1, 2), "INVALID_ARGUMENT", "inputs[0].shape"),
    "zero where fixed": (shape(1, 0), "INVALID_ARGUMENT", "inputs[0].shape"),
    "unknown output": (
        changed(lambda r: r.outputs.add(name="sum")),
        "INVALID_ARGUMENT",
        "outputs[0].name",
    ),
    "typed in another field": (
        typed("FP32", fp64_contents=[1, 2]),
        "INVALID_ARGUMENT",
        "inputs[0].contents",
    ),
    "bytes past the end": (
        text(struct.pack("<I", 100) + b"abc"),
        "INVALID_ARGUMENT",
        "raw_input_contents[0]",
    ),
    "bytes with 4 GiB": (
        text(b"\xff\xff\xff\xff"),
        "INVALID_ARGUMENT",
        "raw_input_contents[0]",
    ),
    "bytes not utf-8": (
        text(b"\x01\0\0\0\xff"),
        "INVALID_ARGUMENT",
        "raw_input_contents[0]",
    ),
    "rows that do not fit": (
        request("add", a=np.ones((2, 2), np.float32), b=np.ones((3, 2), np.float32)),
        "INVALID_ARGUMENT",
        "",
    ),
}
for name in ("nobody", "a/b", "..", "%2e%2e", "nul\0", "x" * 300, ""):
    GRPC[f"model {name[:8]!r}"] = (
        changed(lambda r, name=name: setattr(r, "model_name", name)),  # type: ignore[misc] # the default binds
        "NOT_FOUND",
        "",
    )


def rest(**changes: Any) -> bytes:
    tensor = {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **changes}
    other = {"name": "b", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    return orjson.dumps({"inputs": [tensor, other]})


REST: dict[str, tuple[bytes, str, str]] = {
    "no JSON": (b"{", "INVALID_ARGUMENT", "http_body"),
    "NaN": (rest().replace(b"[1,2]}", b"[1,NaN]}"), "INVALID_ARGUMENT", "http_body"),
    "not UTF-8": (b'{"inputs": "\xff"}', "INVALID_ARGUMENT", "http_body"),
    "wrong nesting": (rest(data=[[1], [2]]), "INVALID_ARGUMENT", "inputs[0].data"),
    "ragged": (rest(data=[[1], 2]), "INVALID_ARGUMENT", "inputs[0].data"),
    "wrong count": (rest(data=[1]), "INVALID_ARGUMENT", "inputs[0].data"),
    "text for numbers": (rest(data=["1", "2"]), "INVALID_ARGUMENT", "inputs[0].data"),
    "beyond FP32": (rest(data=[1e300, 2]), "INVALID_ARGUMENT", "inputs[0].data"),
    "missing data": (
        orjson.dumps({"inputs": [{"name": "a", "datatype": "FP32", "shape": [1, 2]}]}),
        "INVALID_ARGUMENT",
        "inputs[0].data",
    ),
    "shape overflow": (rest(shape=[1 << 62, 1 << 62]), "INVALID_ARGUMENT", "inputs[0].shape"),
    "shape no integer": (rest(shape=["1", 2]), "INVALID_ARGUMENT", "inputs[0].shape"),
}


async def test_bad_input_has_its_answer_and_the_process_stays(home: Home) -> None:
    """All rows against one worker: status, one ErrorInfo, the field; good calls in between are answered."""
    await home.registry.put(ADD, artifact.of_model(good.add()))
    await home.registry.put(TEXT, artifact.of_model(good.identity("BYTES")))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(ADD, "READY")
        await home.registry.until_state(TEXT, "READY")
        client = Client(worker.channel)
        calls: list[tuple[str, Awaitable[Any], str, str]] = [
            *((row, client.oip.ModelInfer(r), s, f) for row, (r, s, f) in GRPC.items()),
            *((row, client.post("add", b), s, f) for row, (b, s, f) in REST.items()),
        ]
        for row, call, status, field in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            found = details(caught.value)
            assert caught.value.code().name == status, row
            assert found["ErrorInfo"].domain == "inferplane", row
            if field:
                fields = [v.field for v in found["BadRequest"].field_violations]
                assert field in fields, row
                assert field in str(caught.value.details()), row
        assert (output(await client.infer("add", a=A, b=A)) == 2 * A).all()
        assert worker.is_alive


async def test_zero_size_is_answered_where_it_is_free(home: Home) -> None:
    """No rows in, no rows out."""
    await home.registry.put(ADD, artifact.of_model(good.add()))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(ADD, "READY")
        nothing = np.zeros((0, 2), np.float32)
        answer = await Client(worker.channel).infer("add", a=nothing, b=nothing)
        assert output(answer).shape == (0, 2)


async def test_json_cannot_carry_infinity_and_says_so(home: Home) -> None:
    """The same output as binary data passes."""
    version = "models/inverse/versions/1"
    await home.registry.put(version, artifact.of_model(good.reciprocal()))
    async with running(home.folder, home.registry_address) as worker:
        await home.registry.until_state(version, "READY")
        client = Client(worker.channel)
        said: dict[str, Any] = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [0]}]
        }
        with pytest.raises(grpc.aio.AioRpcError, match="binary_data"):
            await client.post("inverse", orjson.dumps(said))
        said["parameters"] = {"binary_data_output": True}
        body, _, length = await client.post("inverse", orjson.dumps(said))
        assert np.frombuffer(body[length:], np.float32).tolist() == [np.inf]
