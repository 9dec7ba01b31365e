"""A small mesh in this process, and clients of it."""

from collections.abc import AsyncIterator

import pytest

from services.cli.adapters.edge import Edge, connect
from services.rpc.address import free_port
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
def free_address() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_port()}"
