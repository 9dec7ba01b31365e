"""The log of one supervised process: a file that is moved aside when it has grown large, with one old one kept."""

from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

LARGEST = 10 * 1024 * 1024  # bytes
_REMEMBERED = 20  # lines


class LogFile:
    """Appends lines to `path`; the one before is `path` with `.1`."""

    def __init__(self, path: Path, largest: int = LARGEST) -> None:
        """Nothing is opened yet."""
        self._path = path
        self._largest = largest
        self._stream: BinaryIO | None = None
        self.last_lines: deque[str] = deque(maxlen=_REMEMBERED)

    def open(self) -> None:
        """Open for appending; a large file is moved aside first."""
        if self._path.exists() and self._path.stat().st_size >= self._largest:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._stream = self._path.open("ab", buffering=0)

    def write(self, line: bytes) -> None:
        """Append one line, with its newline."""
        self.last_lines.append(line.decode(errors="replace").rstrip("\r\n"))
        if self._stream is None:
            return
        with suppress(OSError):  # a full disk loses the line, not the process that wrote it
            self._stream.write(line)
            if self._stream.tell() >= self._largest:
                self.close()
                self.open()

    def close(self) -> None:
        """Close; writing again needs `open`."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
