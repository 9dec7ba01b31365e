"""Folders that sockets can lie in."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Paths of sockets have a limit of 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        yield Path(name)
