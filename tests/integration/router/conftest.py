"""A router with a real Envoy for each test, in a folder short enough for sockets."""

import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.router import text_edge as text_edges
from tests.integration.router.edge import EdgeUnderTest
from tests.text_worker import TextWorker
from tests.unit.worker.llm.scripted_runner import ScriptedRunner, capacity


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


@pytest.fixture(params=["auto", "grpcio"])
async def text_worker(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[TextWorker]:
    """Behind either front; its runner computes only while `hold` is set."""
    hold = threading.Event()
    hold.set()
    runner = ScriptedRunner(capacity(blocks=1024, max_blocks=128), hold=hold)
    worker = await TextWorker.start(f"unix:{folder}/text.sock", runner=runner, front=request.param)
    yield worker
    hold.set()
    await worker.stop()


@pytest.fixture
async def text_edge(folder: Path, text_worker: TextWorker) -> AsyncIterator[EdgeUnderTest]:
    """An edge with an endpoint of a language model and one of a tensor model."""
    edge = await text_edges.start(folder, text_worker)
    yield edge
    await edge.stop()
