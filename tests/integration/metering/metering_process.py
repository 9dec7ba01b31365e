"""Metering as a process of its own, and stubs that call it."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from inferplane.metering.v1 import (
    api_key_service_pb2_grpc,
    policy_service_pb2_grpc,
    project_service_pb2_grpc,
)

from services.rpc.settings import environment_for_children

SECONDS = 60


@dataclass(frozen=True, slots=True)
class MeteringStubs:
    """A connection to metering."""

    channel: grpc.aio.Channel
    keys: "api_key_service_pb2_grpc.ApiKeyServiceAsyncStub"
    projects: "project_service_pb2_grpc.ProjectServiceAsyncStub"
    policy: "policy_service_pb2_grpc.PolicyServiceAsyncStub"
    health: health_pb2_grpc.HealthStub


def address_of(folder: Path) -> str:
    return f"unix:{folder}/m.sock"


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[MeteringStubs]:
    """Stubs; they wait until the process is there."""
    options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
    async with grpc.aio.insecure_channel(address_of(folder), options) as channel:
        yield MeteringStubs(
            channel,
            api_key_service_pb2_grpc.ApiKeyServiceStub(channel),
            project_service_pb2_grpc.ProjectServiceStub(channel),
            policy_service_pb2_grpc.PolicyServiceStub(channel),
            health_pb2_grpc.HealthStub(channel),
        )


async def launch(folder: Path, **variables: str) -> asyncio.subprocess.Process:
    given = {
        "state_dir": str(folder),
        "metering_address": address_of(folder),
        "metrics_address": "",
        "drain_seconds": "5",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.metering",
        env=environment_for_children(**{**given, **variables}),
        stderr=asyncio.subprocess.PIPE,
    )


async def end(
    process: asyncio.subprocess.Process, number: signal.Signals | None
) -> tuple[int, str]:
    """Send a signal, unless it ends by itself; wait for the end; exit code and what it said."""
    if process.returncode is None and number is not None:
        process.send_signal(number)
    async with asyncio.timeout(SECONDS):
        _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def serving(process: asyncio.subprocess.Process, stubs: MeteringStubs) -> None:
    """Wait until the process serves; fails with what it said if it ends instead."""
    ready = asyncio.ensure_future(stubs.channel.channel_ready())
    over = asyncio.ensure_future(process.wait())
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([ready, over], return_when=asyncio.FIRST_COMPLETED)
    assert ready.done(), (await process.communicate())[1]
    over.cancel()
    status = await stubs.health.Check(health_pb2.HealthCheckRequest())
    assert status.status in (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )


@asynccontextmanager
async def running(
    folder: Path, **variables: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, MeteringStubs]]:
    """The process and stubs; at the end it is told to stop and must do so in peace."""
    process = await launch(folder, **variables)
    try:
        async with connected(folder) as stubs:
            await serving(process, stubs)
            yield process, stubs
        if process.returncode is None:
            code, said = await end(process, signal.SIGTERM)
            assert code == 0, said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
