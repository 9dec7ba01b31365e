"""A folder for metering, short enough for its socket's path, and a whole metering in this process."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.metering.__main__ import serve
from services.metering.settings import MeteringSettings
from services.rpc.settings import load
from tests.integration.metering.metering_process import (
    SECONDS,
    MeteringStubs,
    address_of,
    connected,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        yield Path(name)


@pytest.fixture
def metrics() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def metering(folder: Path, metrics: CollectorRegistry) -> AsyncIterator[MeteringStubs]:
    settings = load(
        MeteringSettings,
        state_dir=folder,
        metering_address=address_of(folder),
        metrics_address="",
        drain_seconds=1.0,
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop, metrics))
    try:
        async with connected(folder) as stubs, asyncio.timeout(SECONDS):
            ready = asyncio.ensure_future(stubs.channel.channel_ready())
            await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                ready.cancel()
                await serving
            yield stubs
    finally:
        stop.set()
        await asyncio.wait([serving])
    assert serving.exception() is None
