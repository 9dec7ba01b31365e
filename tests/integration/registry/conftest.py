"""A whole registry on a unix socket, in this process, for each test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.registry.__main__ import serve
from services.registry.settings import RegistrySettings
from services.rpc.settings import load
from tests.integration.registry.client import Client


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: socket paths have a limit of 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        yield Path(name)


@pytest.fixture
def settings(folder: Path) -> RegistrySettings:
    return load(
        RegistrySettings,
        state_dir=folder,
        registry_address=f"unix:{folder}/registry.sock",
        store_url="",
        metrics_address="",
        drain_seconds=1.0,
        max_file_bytes=64 * 1024 * 1024,
    )


@pytest.fixture
def metrics() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def client(settings: RegistrySettings, metrics: CollectorRegistry) -> AsyncIterator[Client]:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop, metrics))
    client = Client(settings.registry_address)
    try:
        async with asyncio.timeout(60):
            ready = asyncio.ensure_future(client.channel.channel_ready())
            await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                ready.cancel()
                await serving
        yield client
    finally:
        await client.channel.close()
        stop.set()
        await asyncio.wait([serving])
    assert serving.exception() is None
