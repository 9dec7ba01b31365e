"""Captured texts on disk: gzipped lines of JSON, in files that say until when they may be kept."""

import contextlib
import gzip
import os
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from services.worker.ports.capture_store import CapturedLine

_FILE_BYTES = 8 * 1024**2  # a file that has grown beyond is not written to any more
_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}-until-(\d{8})\.jsonl\.gz")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Open:
    """A file that is written to."""

    path: Path
    file: int
    day: date
    size: int = 0


class CaptureFiles:
    """`CaptureStore` in a folder that all workers of a machine share; each writes files of its own.

    A line is a gzip member of its own, written at once: a file that ends early is whole up to its last lines.
    """

    def __init__(self, folder: Path, total_bytes: int, now: Callable[[], datetime] = _now) -> None:
        """Assign only; beyond `total_bytes` the oldest files go."""
        self._folder = folder
        self._total_bytes = total_bytes
        self._now = now
        self._open: dict[int, _Open] = {}  # by days of retention

    def keep(self, lines: Sequence[CapturedLine]) -> None:
        """See `CaptureStore`."""
        for line in lines:
            data = gzip.compress(line.line + b"\n", mtime=0)
            file = self._file(line.retention_days)
            written = os.write(file.file, data)
            file.size += written
            if written < len(data):  # the rest would begin in the middle of a member
                self._close(line.retention_days)
                raise OSError("the disk took only a part of a line")
        self._bound()

    def tidy(self) -> None:
        """See `CaptureStore`."""
        today = self._now().date()
        for days, file in list(self._open.items()):
            if file.day != today:
                self._close(days)
        for path in self._files():
            if _until(path) < today:
                path.unlink(missing_ok=True)
        self._bound()

    def close(self) -> None:
        """Nothing is written any more."""
        for days in list(self._open):
            self._close(days)

    def _file(self, days: int) -> _Open:
        now = self._now()
        found = self._open.get(days)
        if found is not None and found.day == now.date() and _may_grow(found):
            return found
        if found is not None:
            self._close(days)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = now.date() + timedelta(days=days)
        name = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}-until-{until:%Y%m%d}.jsonl.gz"
        path = self._folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        opened = _Open(path, os.open(path, flags, 0o600), now.date())
        self._open[days] = opened
        return opened

    def _close(self, days: int) -> None:
        os.close(self._open.pop(days).file)

    def _bound(self) -> None:
        sizes = {}
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):  # of other workers, who remove, too
                sizes[path] = path.stat().st_size
        total = sum(sizes.values())
        for path, size in sizes.items():
            if total <= self._total_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _files(self) -> list[Path]:
        """The oldest first."""
        if not self._folder.exists():
            return []
        return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))


def _may_grow(file: _Open) -> bool:
    """Somebody may have removed it, too."""
    return file.size < _FILE_BYTES and file.path.exists()


def _until(path: Path) -> date:
    """The last day on which it may be kept."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date()
