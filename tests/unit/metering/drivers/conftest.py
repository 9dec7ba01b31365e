"""A started identity for each test."""

from pathlib import Path

import pytest

from tests.unit.metering.drivers.identity_world import IdentityWorld


@pytest.fixture
async def world(tmp_path: Path) -> IdentityWorld:
    world = IdentityWorld(tmp_path)
    await world.start()
    return world
