"""Graphs of models that were served before, on disk, shared by all workers of a machine."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from services.worker.adapters.file_lock import FileLock
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.graph_files import GraphFacts, read_facts

_log = structlog.get_logger(__name__)

_KEPT_SECONDS = 30 * 24 * 3600  # unused
_TRIES = 3


class GraphCache:
    """Folders by key. One process makes what is missing, the others wait for it."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        """Assign only; beyond `max_bytes` the least recently used go."""
        self._root = root
        self._max_bytes = max_bytes

    @contextmanager
    def hold(self, key: str, make: Callable[[Path], None]) -> Iterator[tuple[Path, GraphFacts]]:
        """A whole graph, kept while it is held; `make` fills an empty folder if there is none.

        Who has a graph's files open may let go: they stay until they are closed. Raises LoadError.
        """
        try:
            self._root.mkdir(0o700, parents=True, exist_ok=True)
            lock = FileLock(self._root / f"{key}.lock")
            facts = self._shared(key, lock, make)
        except OSError as error:
            raise LoadError(f"graphs can't be kept: {error.strerror or error}") from error
        try:
            with contextlib.suppress(OSError):
                os.utime(self._root / key)
            yield self._root / key, facts
        finally:
            lock.release()

    def _shared(self, key: str, lock: FileLock, make: Callable[[Path], None]) -> GraphFacts:
        for _ in range(_TRIES):
            lock.share()
            facts = read_facts(self._root / key)
            if facts is not None:
                return facts
            lock.release()
            self._make(key, make)
        raise LoadError("its graph is removed as soon as it is made")

    def _make(self, key: str, make: Callable[[Path], None]) -> None:
        lock = FileLock(self._root / f"{key}.lock")
        lock.alone()
        try:
            if read_facts(self._root / key) is not None:
                return  # others were quicker
            for leftover in (self._root / key, *self._root.glob(f"{key}.new-*")):
                shutil.rmtree(leftover, ignore_errors=True)
            self._remove_old()
            started = time.monotonic()
            fresh = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{key}.new-"))
            try:
                make(fresh)
                fresh.rename(self._root / key)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
            _log.info("graph made", key=key, seconds=round(time.monotonic() - started, 2))
        finally:
            lock.release()

    def _remove_old(self) -> None:
        """What nobody holds and nobody has used for long, or what is beyond the bound."""
        found = [(*_use_of(path), path) for path in self._root.iterdir() if path.is_dir()]
        total = sum(size for _, size, _ in found)
        oldest = time.time() - _KEPT_SECONDS
        for used, size, path in sorted(found):
            if (used < oldest or total > self._max_bytes) and self._removed(path):
                total -= size

    def _removed(self, path: Path) -> bool:
        lock = FileLock(self._root / f"{path.name.partition('.')[0]}.lock")
        if not lock.try_alone():
            return False
        try:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            lock.release()
        return True


def _use_of(folder: Path) -> tuple[float, int]:
    """When it was used last, and its bytes."""
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime, sum(file.stat().st_size for file in folder.iterdir())
    return 0.0, 0
