"""A small mesh in this process, and clients of it."""

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from services.cli.adapters.edge import Edge, connect
from tests.unit.cli.small_mesh import HeardReport, Store, serving


@pytest.fixture
async def store() -> Store:
    """What the small mesh holds."""
    return Store()


@pytest.fixture
async def edge(store: Store) -> AsyncIterator[Edge]:
    """Clients of the small mesh."""
    async with serving(store) as address, connect(address) as clients:
        yield clients


@pytest.fixture
def report() -> HeardReport:
    """A report that tests can read."""
    return HeardReport()


@pytest.fixture
def free_address() -> Iterator[str]:
    """An address where nothing listens, nor can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
