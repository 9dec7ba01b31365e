"""Locks between processes that share a folder, on files beside what they guard."""

import fcntl
import os
from pathlib import Path


class FileLock:
    """An advisory lock (flock); ends with `release`, and with the process."""

    def __init__(self, path: Path) -> None:
        """Assign only."""
        self._path = path
        self._file: int | None = None

    def share(self) -> None:
        """Hold it together with others; blocks while somebody has it alone."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def alone(self) -> None:
        """Hold it alone; blocks while anybody else has it."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def try_alone(self) -> bool:
        """Hold it alone if nobody else has it."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Let go; nothing if not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
