"""The table of requests that are open, in a mapped file: what a process stores there survives its death at once."""

import mmap
import os
from pathlib import Path

import numpy as np

from services.worker.domain.usage_row import FREE, ROW, ROW_BYTES

_HEAD_BYTES = 4096
_SEEN_WORD = 1
_MAGIC = b"IPUSAGE1"


class UsageTable:
    """Slots of one row each. A slot is the place of its row in the map, in bytes."""

    def __init__(self, path: Path) -> None:
        """Assign only; `create` or `open` follows."""
        self._path = path
        self.map: mmap.mmap
        self.words: memoryview  # of 8 bytes

    def create(self, slots: int) -> None:
        """A new one. Raises OSError.

        Its room on the disk is taken now: a page without it would end the process once the disk is full.
        """
        size = _HEAD_BYTES + slots * ROW_BYTES
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
            self._take(file)
        finally:
            os.close(file)
        self.map[: len(_MAGIC)] = _MAGIC

    def open(self) -> None:
        """One that is there. Raises OSError, or ValueError if it was not finished."""
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._take(file)
        finally:
            os.close(file)
        if self.map[: len(_MAGIC)] != _MAGIC:
            self.close()
            raise ValueError(f"{self._path} is no table of requests")

    def close(self) -> None:
        """Let go of it."""
        self.words.release()
        self.map.close()

    def slots(self) -> list[int]:
        """All of them, the first last."""
        return list(range(_HEAD_BYTES, len(self.map), ROW_BYTES))[::-1]

    def used(self) -> list[tuple[int, int]]:
        """Slots that are not free, and their states."""
        with memoryview(self.map) as view:
            states = np.frombuffer(view, ROW, offset=_HEAD_BYTES)["state"]
            found = [(int(i), int(states[i])) for i in np.flatnonzero(states != FREE)]
            del states
        return [(_HEAD_BYTES + index * ROW_BYTES, state) for index, state in found]

    def row(self, slot: int) -> bytes:
        """The row in a slot."""
        return self.map[slot : slot + ROW_BYTES]

    def see(self, now_ns: int) -> None:
        """The process lives."""
        self.words[_SEEN_WORD] = now_ns

    @property
    def seen_ns(self) -> int:
        """When the process last lived."""
        return int(self.words[_SEEN_WORD])

    def sync(self) -> None:
        """To the disk."""
        self.map.flush()

    def _take(self, file: int) -> None:
        self.map = mmap.mmap(file, 0)
        self.words = memoryview(self.map).cast("Q")
