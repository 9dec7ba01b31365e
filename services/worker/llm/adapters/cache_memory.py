"""Memory for keys and values: large, zero at first, taken from the system only as it is used."""

import ctypes
import mmap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.step import Array

_HUGE_PAGE = 2 * 1024**2


class CacheMemory:
    """Arrays in one mapping; those who hold them keep it alive."""

    def __init__(self, size: int) -> None:
        """Raises LoadError if the system has no such range."""
        size = -(-max(size, 1) // _HUGE_PAGE) * _HUGE_PAGE
        try:
            self._mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise LoadError(
                f"there are no {size} bytes for its cache of keys and values: {error}"
            ) from error
        # Blocks are read in any order: with small pages every block would be looked up in the page tables (3 to 5 %
        # of a step with long contexts).
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._taken = 0

    def array(self, dtype: Any, shape: Sequence[int]) -> Array:
        """The next part."""
        count = int(np.prod(shape, dtype=np.int64))
        begin = self._taken
        self._taken += count * np.dtype(dtype).itemsize
        return np.frombuffer(self._mapping, dtype, count, begin).reshape(shape)


def take_first_pages(parts: Iterable[Array]) -> None:
    """Take the memory that the first blocks lie in: a huge page for each part, which the first step would wait for.

    Frees the GIL meanwhile.
    """
    for part in parts:
        ctypes.memset(part.ctypes.data, 0, 1)
