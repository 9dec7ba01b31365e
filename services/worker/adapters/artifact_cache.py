"""Versions' files on disk: `cache/{digest}/…`, verified before each use, bounded, shared by the workers of a machine.

What is there under a digest is complete: files are fetched beside it and renamed into place. A worker holds a shared
lock on what it has loaded; eviction takes the lock alone. Fetching resumes where an earlier attempt, also of a worker
that died, ended.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import structlog
import tenacity

from services.worker.adapters.file_lock import FileLock
from services.worker.domain.artifact_path import is_digest, is_inside
from services.worker.domain.assignment import ArtifactFile, VersionSpec
from services.worker.domain.load_state import LoadError
from services.worker.ports.registry import ConnectionLostError, FileSource

_log = structlog.get_logger(__name__)

_ATTEMPTS = 5  # without a byte of progress, before the load counts as failed
_READ_BYTES = 1 << 20


class DiskArtifactCache:
    """ArtifactCache in a folder."""

    def __init__(self, root: Path, source: FileSource, max_bytes: int, owner: str) -> None:
        """Assign only.

        Args:
            root: made if it isn't there; several workers may use it at once.
            source: where missing files come from.
            max_bytes: bound on everything that is cached; what is loaded is never evicted.
            owner: this worker's id.
        """
        self._root = root
        self._partial = root / "partial"
        self._source = source
        self._max_bytes = max_bytes
        self._owner = owner
        # By digest; gone when nobody holds it or waits for it.
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, spec: VersionSpec) -> AsyncIterator[Path]:
        """The folder with the version's files, fetched if needed, verified now, kept while held. Raises LoadError."""
        _check_names(spec)
        folder = self._root / spec.digest
        lock = FileLock(self._root / f"{spec.digest}.lock")
        try:
            await asyncio.to_thread(self._partial.mkdir, 0o700, parents=True, exist_ok=True)
            await asyncio.to_thread(lock.share)
            async with self._busy.setdefault(spec.digest, asyncio.Lock()):
                await self._provide(spec, folder)
        except OSError as error:
            lock.release()
            raise LoadError(f"cannot keep the files on this worker's disk: {error}") from error
        except BaseException:
            lock.release()
            raise
        try:
            yield folder
        finally:
            lock.release()

    async def _provide(self, spec: VersionSpec, folder: Path) -> None:
        if not await asyncio.to_thread(self._is_there, spec, folder):
            await asyncio.to_thread(self._make_room, sum(file.size for file in spec.files))
            await self._fetch(spec, folder)

    def _is_there(self, spec: VersionSpec, folder: Path) -> bool:
        if not folder.exists():
            return False
        wrong = _wrong_file(spec, folder)
        if wrong is None:
            os.utime(folder)  # what is used last is evicted last
            return True
        _log.error("cached artifact is corrupt, fetching it anew", reason=wrong[1])
        self._discard(folder)
        return False

    async def _fetch(self, spec: VersionSpec, folder: Path) -> None:
        place, lock = self._claim_partial(spec.digest)
        try:
            for file in spec.files:
                await self._fetch_file(spec, file, place / file.path)
            await asyncio.to_thread(_publish, spec, place, folder)
        finally:
            lock.release()

    async def _fetch_file(self, spec: VersionSpec, file: ArtifactFile, path: Path) -> None:
        await asyncio.to_thread(path.parent.mkdir, 0o700, parents=True, exist_ok=True)
        stuck = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(ConnectionLostError),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            reraise=True,
        )
        progress = True
        while progress:
            before = _size(path)
            try:
                async for attempt in stuck:
                    with attempt:
                        await self._append(spec, file, path)
                return
            except ConnectionLostError as error:
                progress = _size(path) > before
                if not progress:
                    raise LoadError(
                        f"the registry is not reached for its files: {error}"
                    ) from error

    async def _append(self, spec: VersionSpec, file: ArtifactFile, path: Path) -> None:
        """From where the file ends to its declared end, no further."""
        size = _size(path)
        if size == file.size:
            return
        if size > file.size:
            size = 0
        with await asyncio.to_thread(path.open, "ab" if size else "wb") as out:
            async for chunk in self._source.download(spec.name, file.path, size):
                size += len(chunk)
                if size > file.size:
                    raise LoadError(
                        f"{file.path!r} is longer than the {file.size} bytes registered"
                    )
                await asyncio.to_thread(out.write, chunk)
        if size != file.size:
            raise ConnectionLostError(f"{file.path!r} ended after {size} of {file.size} bytes")

    def _claim_partial(self, digest: str) -> tuple[Path, FileLock]:
        """A folder to fetch into: the one that is shared by name, or an own one while another worker has that."""
        for name in (digest, f"{digest}-{self._owner}"):
            lock = FileLock(self._partial / f"{name}.lock")
            if lock.try_alone():
                place = self._partial / name
                place.mkdir(mode=0o700, exist_ok=True)
                return place, lock
        raise LoadError("the folder for fetched files is locked by another worker")

    def _make_room(self, needed: int) -> None:
        """Evict what was used longest ago and nobody has loaded; then forget what dead workers left."""
        folders = [f for f in self._root.iterdir() if f.is_dir() and is_digest(f.name)]
        folders.sort(key=lambda f: f.stat().st_mtime)
        sizes = {f: sum(p.stat().st_size for p in f.rglob("*") if p.is_file()) for f in folders}
        total = sum(sizes.values()) + needed
        for folder in folders:
            if total <= self._max_bytes:
                return
            lock = FileLock(self._root / f"{folder.name}.lock")
            if lock.try_alone():
                self._discard(folder)
                lock.release()
                total -= sizes[folder]
                _log.info("evicted from the cache", digest=folder.name, bytes=sizes[folder])

    def _discard(self, folder: Path) -> None:
        # Renamed first: what is half removed must not be found under its digest.
        doomed = self._partial / f"{folder.name}-{self._owner}.discarded"
        folder.rename(doomed)
        shutil.rmtree(doomed)


def _check_names(spec: VersionSpec) -> None:
    if not is_digest(spec.digest):
        raise LoadError("the version's digest is not a SHA-256 in lower-case hex")
    for file in spec.files:
        if not is_inside(file.path):
            raise LoadError(f"file path {file.path[:200]!r} leaves the version's folder")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _publish(spec: VersionSpec, place: Path, folder: Path) -> None:
    """Verify what was fetched and put it where it is found; what is wrong is thrown away."""
    wrong = _wrong_file(spec, place)
    if wrong is not None:
        path, reason = wrong
        (place / path).unlink(missing_ok=True)
        raise LoadError(reason)
    try:
        place.rename(folder)
    except OSError:  # another worker was faster
        if not folder.exists():
            raise
        shutil.rmtree(place)


def _wrong_file(spec: VersionSpec, folder: Path) -> tuple[str, str] | None:
    """The first file that is not what is registered, and how it differs; None: all are."""
    for file in spec.files:
        path = folder / file.path
        if path.is_symlink() or not path.is_file():
            return file.path, f"{file.path!r} is missing or no regular file"
        size = path.stat().st_size
        if size != file.size:
            return file.path, f"{file.path!r} has {size} bytes, registered {file.size}"
        digest = _sha256(path)
        if digest != file.sha256:
            return file.path, f"{file.path!r} has SHA-256 {digest}, registered {file.sha256}"
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
