"""Uploads and downloads over a real server."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from inferplane.registry.v1 import artifact_service_pb2 as pb
from inferplane.registry.v1 import model_pb2, model_service_pb2

from services.registry.settings import RegistrySettings
from tests.integration.registry.client import MODEL, Client, chunk, refused, start

V1 = "models/m/versions/1"
WEIGHTS = os.urandom(5 * 1024 * 1024 + 7)


def blob_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.blobs/**/*") if path.is_file())


async def stream(client: Client, *messages: pb.UploadArtifactRequest) -> pb.UploadArtifactResponse:
    async def send() -> AsyncIterator[pb.UploadArtifactRequest]:
        for message in messages:
            yield message

    return await client.artifacts.UploadArtifact(send())


async def test_bytes_come_back(client: Client) -> None:
    """A file of several chunks is stored, verified, and read from any offset."""
    name = await client.push("m@1", weights=WEIGHTS)
    for offset in (0, 1, len(WEIGHTS) - 1, len(WEIGHTS)):
        assert await client.download(name, "weights", offset) == WEIGHTS[offset:]


async def test_an_upload_is_resumed_after_a_broken_stream(client: Client) -> None:
    """1. a stream is cancelled after some chunks; 2. the bytes are there; 3. the rest completes the file."""
    await client.declare("m@1", model__onnx=MODEL, weights=WEIGHTS)
    call = client.artifacts.UploadArtifact()
    await call.write(start(V1, "weights"))
    await call.write(chunk(WEIGHTS[:1_000_000]))
    await client.arrived(V1, "weights", 1_000_000)
    call.cancel()
    async with asyncio.timeout(60):
        answer = await client.resume(V1, "weights", WEIGHTS, 1_000_000)
    assert (answer.stored_bytes, answer.complete) == (len(WEIGHTS), True)


async def test_an_upload_in_pieces(client: Client) -> None:
    """A stream that ends early is no error; the answer says how much is there."""
    await client.declare("m@1", model__onnx=MODEL)
    first = await stream(client, start(V1, "model.onnx"), chunk(MODEL[:10]), chunk(b""))
    assert (first.stored_bytes, first.complete) == (10, False)
    last = await stream(client, start(V1, "model.onnx", 10), chunk(MODEL[10:]))
    assert (last.stored_bytes, last.complete) == (len(MODEL), True)
    known = await stream(client, start(V1, "model.onnx", len(MODEL)))
    assert known.complete


async def test_offsets_must_fit(client: Client) -> None:
    """Any other offset than what is stored is refused, with what is stored."""
    await client.declare("m@1", model__onnx=MODEL)
    await stream(client, start(V1, "model.onnx"), chunk(MODEL[:10]))
    for offset in (0, 9, 11, -1, 2**62):
        refusal = await refused(stream(client, start(V1, "model.onnx", offset), chunk(b"x")))
        assert refusal.code is grpc.StatusCode.OUT_OF_RANGE
        assert refusal.metadata["stored_bytes"] == "10"


async def test_two_uploads_of_one_file(client: Client) -> None:
    """While one stream is open the second is refused and told to try again; the first goes on."""
    await client.declare("m@1", model__onnx=MODEL)
    call = client.artifacts.UploadArtifact()
    await call.write(start(V1, "model.onnx"))
    await call.write(chunk(MODEL[:10]))
    await client.arrived(V1, "model.onnx", 10)
    refusal = await refused(client.upload(V1, "model.onnx", MODEL, 10))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "UPLOAD_IN_PROGRESS")
    assert refusal.retry
    await call.write(chunk(MODEL[10:]))
    await call.done_writing()
    assert (await call).complete


async def test_a_wrong_digest_is_data_loss(client: Client, folder: Path) -> None:
    """Bytes that are not what was declared are dropped; the right ones are taken afterwards."""
    await client.declare("m@1", model__onnx=MODEL)
    refusal = await refused(client.upload(V1, "model.onnx", b"x" * len(MODEL)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.DATA_LOSS, "DIGEST_MISMATCH")
    assert blob_files(folder) == []
    assert (await client.upload(V1, "model.onnx", MODEL)).complete


async def test_equal_content_is_stored_once(client: Client, folder: Path) -> None:
    """A second version with the same bytes needs no upload, and outlives the first."""
    one = await client.push("m@1")
    two = (await client.declare("m@2", model__onnx=MODEL, copy=MODEL)).name
    assert await client.stored(two) == {"model.onnx": len(MODEL), "copy": len(MODEL)}
    await client.finish(two)
    assert len(blob_files(folder)) == 1
    delete = client.models.DeleteModelVersion
    await delete(model_service_pb2.DeleteModelVersionRequest(name=one))
    assert await client.download(two, "copy") == MODEL
    await delete(model_service_pb2.DeleteModelVersionRequest(name=two))
    assert blob_files(folder) == []


async def test_deleting_an_unfinished_version_removes_its_bytes(
    client: Client, folder: Path
) -> None:
    """Complete and incomplete files of an upload that is given up go at once."""
    await client.declare("m@1", model__onnx=MODEL, weights=WEIGHTS)
    await client.upload(V1, "model.onnx", MODEL)
    await stream(client, start(V1, "weights"), chunk(WEIGHTS[:100]))
    assert len(blob_files(folder)) == 2
    await client.models.DeleteModelVersion(model_service_pb2.DeleteModelVersionRequest(name=V1))
    assert blob_files(folder) == []


async def test_empty_files_need_no_upload(client: Client) -> None:
    """An empty file is complete by its declaration."""
    name = (await client.declare("m@1", model__onnx=MODEL, empty=b"")).name
    await client.upload(name, "model.onnx", MODEL)
    await client.finish(name)
    assert await client.download(name, "empty") == b""


async def test_a_slow_download_survives_the_deletion(client: Client) -> None:
    """Who began to download gets all bytes, also if the version is deleted meanwhile."""
    name = await client.push("m@1", weights=WEIGHTS)
    call = client.artifacts.DownloadArtifact(pb.DownloadArtifactRequest(name=name, path="weights"))
    got = b""
    async for response in call:
        if not got:
            delete = model_service_pb2.DeleteModelVersionRequest(name=name)
            await client.models.DeleteModelVersion(delete)
        got += response.chunk
    assert got == WEIGHTS


@pytest.mark.parametrize(
    ("messages", "code", "reason", "text"),
    [
        pytest.param(
            [],
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            "start: the stream begins with nothing",
            id="empty",
        ),
        pytest.param(
            [chunk(b"x")],
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            "begins with chunk",
            id="chunk first",
        ),
        pytest.param(
            [start(V1, "model.onnx"), start(V1, "model.onnx")],
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            "chunk: a message without chunk",
            id="start twice",
        ),
        pytest.param(
            [start("models/m", "model.onnx")],
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            "allowed: models/{model}/versions/{version}",
            id="bad name",
        ),
        pytest.param(
            [start("models/m/versions/9", "model.onnx")],
            "NOT_FOUND",
            "NOT_FOUND",
            "models/m/versions/9 does not exist",
            id="no version",
        ),
        pytest.param(
            [start(V1, "../../etc/passwd")],
            "NOT_FOUND",
            "FILE_NOT_FOUND",
            "declares no file '../../etc/passwd'; declared: model.onnx",
            id="undeclared path",
        ),
        pytest.param(
            [start(V1, "model.onnx"), chunk(b"x" * (4 * 1024 * 1024 + 1))],
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            "4194305 bytes; allowed: at most 4194304",
            id="large chunk",
        ),
        pytest.param(
            [start(V1, "model.onnx"), chunk(b"x" * (len(MODEL) + 1))],
            "INVALID_ARGUMENT",
            "FILE_TOO_LONG",
            f"declared with {len(MODEL)}",
            id="more than declared",
        ),
    ],
)
async def test_uploads_that_are_refused(
    client: Client,
    messages: list[pb.UploadArtifactRequest],
    code: str,
    reason: str,
    text: str,
) -> None:
    """Each has its status, its reason, and a message that says what was given and what is allowed."""
    await client.declare("m@1", model__onnx=MODEL)
    refusal = await refused(stream(client, *messages))
    assert (refusal.code.name, refusal.reason) == (code, reason)
    assert text in refusal.message
    assert (await client.upload(V1, "model.onnx", MODEL)).complete


async def test_downloads_that_are_refused(client: Client) -> None:
    """Unfinished versions, undeclared paths, offsets outside."""
    await client.declare("m@1", model__onnx=MODEL)
    unfinished = await refused(client.download(V1, "model.onnx"))
    assert unfinished.reason == "VERSION_NOT_READY"
    await client.upload(V1, "model.onnx", MODEL)
    await client.finish(V1)
    for offset in (-1, len(MODEL) + 1):
        outside = await refused(client.download(V1, "model.onnx", offset))
        assert outside.code is grpc.StatusCode.OUT_OF_RANGE
        assert f"{offset}; allowed: 0 to {len(MODEL)}" in outside.message
    unknown = await refused(client.download(V1, "/etc/passwd"))
    assert unknown.reason == "FILE_NOT_FOUND"


async def test_a_file_over_the_limit_is_refused(client: Client, settings: RegistrySettings) -> None:
    """It is refused when it is declared, with the limit in the message."""
    too_large = settings.max_file_bytes + 1
    request = model_service_pb2.CreateModelVersionRequest(parent="models/m", version_id="1")
    request.model_version.format = model_pb2.FORMAT_ONNX
    request.model_version.files.add(path="a.onnx", size_bytes=too_large, sha256="0" * 64)
    refusal = await refused(client.models.CreateModelVersion(request))
    assert refusal.fields == ("files[0].size_bytes",)
    assert f"{too_large}; allowed: 0 to {settings.max_file_bytes}" in refusal.message
