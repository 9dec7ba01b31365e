"""A router with a real Envoy for each test, in a folder short enough for sockets."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.router.edge import EdgeUnderTest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for sockets, configuration and logs."""
    with tempfile.TemporaryDirectory(prefix="ip") as name:
        yield Path(name)


@pytest.fixture
async def edge(folder: Path) -> AsyncIterator[EdgeUnderTest]:
    """A router and an Envoy that serves no endpoint yet."""
    edge = await EdgeUnderTest.start(folder)
    yield edge
    await edge.stop()
