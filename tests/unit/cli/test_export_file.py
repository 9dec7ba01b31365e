"""Files that come in pieces."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.cli.adapters.export_file import write
from services.cli.domain.exit_code import UsageError


async def _pieces(*parts: bytes, breaks: bool = False) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if breaks:
        raise ConnectionError("gone")


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_file_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    """It takes the place of the one there was."""
    file = tmp_path / "usage.csv"
    file.write_bytes(b"old")
    assert await write(_pieces(b"a", b"bc"), str(file)) == 3
    assert file.read_bytes() == b"abc"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert _files(tmp_path) == [file]


async def test_a_stream_that_breaks_changes_nothing(tmp_path: Path) -> None:
    """What there was stays, and no half file beside it."""
    file = tmp_path / "usage.csv"
    file.write_bytes(b"old")
    with pytest.raises((UsageError, ConnectionError)):
        await write(_pieces(b"a", breaks=True), str(file))
    assert file.read_bytes() == b"old"
    assert _files(tmp_path) == [file]


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(UsageError, match="nowhere"):
        await write(_pieces(b"a"), str(tmp_path / "nowhere" / "usage.csv"))
