"""A registry stand-in and folders short enough for sockets."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.worker import registry_stand_in
from tests.integration.worker.registry_stand_in import Registry


@dataclass(frozen=True, slots=True)
class Home:
    """Where one test's processes live."""

    folder: Path
    registry_address: str
    registry: Registry


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        yield Path(name)


@pytest.fixture
async def home(folder: Path) -> AsyncIterator[Home]:
    registry, address = Registry(), f"unix:{folder}/registry.sock"
    async with registry_stand_in.serving(registry, address):
        yield Home(folder, address, registry)


@pytest.fixture(params=["auto", "grpcio"])
def both_fronts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test over the fast front, then over grpcio."""
    monkeypatch.setenv("INFERPLANE_FRONT", request.param)
    return str(request.param)
