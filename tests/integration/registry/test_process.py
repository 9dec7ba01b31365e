"""The registry as a process: starts, stops, dies in the middle, and what it refuses to start on."""

import asyncio
import os
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from inferplane.registry.v1 import watch_service_pb2

from tests.integration.registry.client import MODEL, Client, chunk, read, start
from tests.integration.registry.registry_process import end, launch

V1 = "models/m/versions/1"
WEIGHTS = os.urandom(3 * 1024 * 1024)


@asynccontextmanager
async def running(
    folder: Path, **variables: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Client]]:
    process = await launch(folder, **variables)
    client = Client(f"unix:{folder}/run/registry.sock")
    try:
        async with asyncio.timeout(60):
            await client.channel.channel_ready()
        yield process, client
    finally:
        await client.channel.close()
        await end(process, signal.SIGKILL)


async def refuses(folder: Path, **variables: str) -> str:
    """What a process says that must not start."""
    process = await launch(folder, **variables)
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in said.decode()
    return said.decode()


async def test_kill_in_the_middle_of_an_upload(folder: Path) -> None:
    """1. killed with half a file; 2. started again, the half is there; 3. the rest makes a READY version."""
    half = len(WEIGHTS) // 2
    async with running(folder) as (process, client):
        await client.declare("m@1", model__onnx=MODEL, weights=WEIGHTS)
        await client.upload(V1, "model.onnx", MODEL)
        call = client.artifacts.UploadArtifact()
        await call.write(start(V1, "weights"))
        await call.write(chunk(WEIGHTS[:half]))
        await client.arrived(V1, "weights", half)
        code, _ = await end(process, signal.SIGKILL)
        assert code == -signal.SIGKILL
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    async with running(folder) as (_, client):
        assert await client.stored(V1) == {"model.onnx": len(MODEL), "weights": half}
        assert (await client.upload(V1, "weights", WEIGHTS, half)).complete
        await client.finish(V1)
        assert await client.download(V1, "weights") == WEIGHTS


async def test_sigterm_ends_it_cleanly(folder: Path) -> None:
    """Watches end at once with UNAVAILABLE, the process exits with 0, and state lasts."""
    async with running(folder) as (process, client):
        await client.push("m@1")
        watch = client.watches.Watch(watch_service_pb2.WatchRequest())
        revision = (await read(watch)).revision
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await watch.read()
        # The reason is held by `test_server.py`: here the connection may end before it is read.
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        code, said = await end(process, signal.SIGTERM)
        assert code == 0
        assert "Traceback" not in said
    async with running(folder) as (_, client):
        request = watch_service_pb2.WatchRequest(after_revision=revision)
        response = await read(client.watches.Watch(request))
        assert (response.revision, len(response.changes)) == (revision, 0)


async def test_a_running_call_ends_before_the_process(folder: Path) -> None:
    """An upload that is under way at SIGTERM is taken to its end."""
    async with running(folder) as (process, client):
        await client.declare("m@1", model__onnx=MODEL)
        call = client.artifacts.UploadArtifact()
        await call.write(start(V1, "model.onnx"))
        await call.write(chunk(MODEL[:10]))
        await client.arrived(V1, "model.onnx", 10)
        watch = client.watches.Watch(watch_service_pb2.WatchRequest())
        await watch.read()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError):
            await watch.read()  # it is stopping now
        await call.write(chunk(MODEL[10:]))
        await call.done_writing()
        assert (await call).complete
        assert (await end(process, signal.SIGTERM))[0] == 0


async def test_a_second_process_is_refused(folder: Path) -> None:
    """The same state folder can't be served twice; the message names the process that has it."""
    async with running(folder) as (process, client):
        await client.push("m@1")
        said = await refuses(folder)
        assert f"in use by another registry (process {process.pid})" in said
        assert await client.download(V1, "model.onnx") == MODEL


async def test_a_newer_database_is_refused(folder: Path) -> None:
    """A database of a newer release is left alone."""
    async with running(folder):
        pass
    with closing(sqlite3.connect(folder / "registry" / "registry.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    assert "has schema 9999" in await refuses(folder)


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("store_url", "postgresql://u:secret@x/y", "put it into a file"),
        ("store_url", "nonsense", "allowed: memory:, sqlite:///path"),
        ("store_url", f"sqlite:////tmp/{'d' * 250}/{'e' * 250}/x.db", "allowed: at most 504"),
        ("state_dir", "/dev/null/x", "/dev/null/x/registry: Not a directory; INFERPLANE_STATE_DIR"),
        ("registry_address", "nowhere", "'nowhere' is not an address"),
        ("max_message_bytes", "many", "INFERPLANE_MAX_MESSAGE_BYTES='many'"),
        ("upload_ttl_seconds", "-1", "INFERPLANE_UPLOAD_TTL_SECONDS='-1'"),
    ],
)
async def test_bad_settings_are_refused(folder: Path, variable: str, value: str, text: str) -> None:
    """The message names the variable or the value, and what is allowed; no traceback."""
    assert text in await refuses(folder, **{variable: value})


async def test_a_taken_port_is_said_so(folder: Path) -> None:
    """The message names the address; no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"can't listen on {address}" in await refuses(folder, registry_address=address)


async def test_what_a_crash_left_is_removed_at_start(folder: Path) -> None:
    """Contents that no version has go with the next start; those of an upload under way stay."""
    async with running(folder) as (_, client):
        await client.declare("m@1", model__onnx=MODEL)

        blobs = folder / "registry" / "registry.blobs"
        (blobs / "partial" / f"{'0' * 64}-9").write_bytes(b"left")
        (blobs / "sha256" / "00").mkdir()
        (blobs / "sha256" / "00" / ("0" * 64)).write_bytes(b"left")
        call = client.artifacts.UploadArtifact()
        await call.write(start(V1, "model.onnx"))
        await call.write(chunk(MODEL[:10]))
        await client.arrived(V1, "model.onnx", 10)
        call.cancel()
    async with running(folder) as (_, client):
        assert await client.stored(V1) == {"model.onnx": 10}
        left = [path for path in blobs.rglob("*") if path.is_file()]
        assert [path.name.partition("-")[2] for path in left] == [str(len(MODEL))]


async def test_the_store_in_memory_forgets(folder: Path) -> None:
    """With memory: all is gone after a restart, also on disk."""
    async with running(folder, store_url="memory:") as (_, client):
        await client.push("m@1")
    async with running(folder, store_url="memory:") as (_, client):
        response = await read(client.watches.Watch(watch_service_pb2.WatchRequest()))
        assert len(response.changes) == 0
        assert [
            p for p in (folder / "registry").rglob("*") if p.is_file() and p.suffix != ".lock"
        ] == []


def service_names(answers: Sequence[reflection_pb2.ServerReflectionResponse]) -> set[str]:
    return {s.name for answer in answers for s in answer.list_services_response.service}


async def test_health_and_reflection(folder: Path) -> None:
    """The process says that it serves, and what it serves."""
    async with running(folder) as (_, client):
        health = health_pb2_grpc.HealthStub(client.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        call = reflection.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        names = service_names([answer async for answer in call])
        for service in ("Model", "Artifact", "Endpoint", "Placement", "Watch"):
            assert f"inferplane.registry.v1.{service}Service" in names
        assert "inferplane.discovery.v1.DiscoveryService" in names
