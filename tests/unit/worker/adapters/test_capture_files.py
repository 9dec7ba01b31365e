"""Captured texts on disk: whole lines, for their owner, for a time, within a bound."""

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.worker.adapters.capture_files import CaptureFiles
from services.worker.ports.capture_store import CapturedLine


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines_of(folder: Path) -> list[str]:
    texts = [gzip.decompress(path.read_bytes()).decode() for path in sorted(folder.iterdir())]
    return "".join(texts).splitlines()


def test_lines_are_kept_for_their_owner_alone(tmp_path: Path, clock: Clock) -> None:
    """In one file for each time of retention, readable by nobody else."""
    files = CaptureFiles(tmp_path / "capture", 1 << 20, clock)
    files.keep([CapturedLine(b"1", 7), CapturedLine(b"2", 7), CapturedLine(b"3", 1)])
    assert sorted(lines_of(tmp_path / "capture")) == ["1", "2", "3"]
    paths = list((tmp_path / "capture").iterdir())
    assert len(paths) == 2
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert (tmp_path / "capture").stat().st_mode & 0o777 == 0o700
    files.close()


def test_lines_go_when_their_time_is_over(tmp_path: Path, clock: Clock) -> None:
    """Also those of workers that are gone."""
    files = CaptureFiles(tmp_path, 1 << 20, clock)
    files.keep([CapturedLine(b"short", 0), CapturedLine(b"long", 2)])
    files.close()
    other = CaptureFiles(tmp_path, 1 << 20, clock)
    other.tidy()
    assert sorted(lines_of(tmp_path)) == ["long", "short"]
    clock.now += timedelta(days=1)
    other.tidy()
    assert lines_of(tmp_path) == ["long"]
    clock.now += timedelta(days=2)
    other.tidy()
    assert lines_of(tmp_path) == []


def test_a_day_has_files_of_its_own(tmp_path: Path, clock: Clock) -> None:
    """Else a file that is written to would keep its first lines for ever."""
    files = CaptureFiles(tmp_path, 1 << 20, clock)
    files.keep([CapturedLine(b"1", 3)])
    clock.now += timedelta(hours=2)
    files.keep([CapturedLine(b"2", 3)])
    assert len(list(tmp_path.iterdir())) == 2
    files.close()


def test_the_oldest_go_beyond_the_bound(tmp_path: Path, clock: Clock) -> None:
    """What is kept stays within the bytes that it may have."""
    files = CaptureFiles(tmp_path, 100, clock)
    for number in range(8):
        files.keep([CapturedLine(b"%d" % number, number)])
        clock.now += timedelta(seconds=1)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100
    assert lines_of(tmp_path)[-1] == "7"
    assert "0" not in lines_of(tmp_path)
    files.close()


def test_a_file_that_was_purged_is_begun_anew(tmp_path: Path, clock: Clock) -> None:
    """Lines don't go into a file that nobody can see."""
    files = CaptureFiles(tmp_path, 1 << 20, clock)
    files.keep([CapturedLine(b"1", 7)])
    for path in tmp_path.iterdir():
        path.unlink()
    files.keep([CapturedLine(b"2", 7)])
    assert lines_of(tmp_path) == ["2"]
    files.close()


def test_files_of_others_are_left_alone(tmp_path: Path, clock: Clock) -> None:
    """Only what has the name of a capture is removed."""
    (tmp_path / "notes.txt").write_text("mine")
    files = CaptureFiles(tmp_path, 1, clock)
    files.keep([CapturedLine(b"1", 0)])
    clock.now += timedelta(days=400)
    files.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_that_ends_early_is_whole_up_to_there(tmp_path: Path, clock: Clock) -> None:
    """Each line is readable by itself, so that a crash costs the last one at most."""
    files = CaptureFiles(tmp_path, 1 << 20, clock)
    files.keep([CapturedLine(b"first", 7), CapturedLine(b"second", 7)])
    files.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    with pytest.raises(EOFError):
        gzip.decompress(whole[:-3])
    first = whole[: whole.index(b"\x1f\x8b", 2)]
    assert gzip.decompress(first) == b"first\n"
