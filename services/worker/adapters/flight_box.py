"""What a worker is computing, in a file that outlives it; and what those computed that died.

Envoy tries a request again that a worker died with, on the next worker: if the model crashes on it, that one dies too,
and the next. Nobody but the workers can know: each keeps the inputs of its present runs in a mapped file, which costs
a copy of them. A file whose worker no longer holds its lock is a wreck.

What was computed leaves the file with the end of its run. Texts are never in it, only keyed digests of them.
"""

import fcntl
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np
import structlog

from services.worker.adapters import lock_holder
from services.worker.adapters.file_lock import FileLock
from services.worker.adapters.shared_secret import shared_secret
from services.worker.domain.contents import Array
from services.worker.ports.session import Session

_log = structlog.get_logger(__name__)

_SLOTS = 16  # runs at once that are noted
_SLOT_BYTES = 1 << 20  # of inputs of one run; rows beyond are not noted
_LENGTH = struct.Struct("<Q")
_STRIDE = _LENGTH.size + _SLOT_BYTES
_NOTHING = memoryview(bytes(_SLOT_BYTES))
_DIGEST_BYTES = 16
_LOOK_SECONDS = 0.002  # between two looks at a process that may be dying
_DYING_SECONDS = 0.05  # so long one may take to end, if it can't be seen whether it does
_ENDING_SECONDS = 5.0  # if it can
_FRESH_SECONDS = 300.0  # so long requests are compared with a wreck


class FlightBoxes:
    """Flights in a folder that all workers of this machine share."""

    def __init__(self, folder: Path, owner: str) -> None:
        """Assign only; `owner` is this worker's id."""
        self._folder = folder
        self._path = folder / f"{owner}.box"
        self._lock = FileLock(self._path)
        self._key = b""  # of texts' digests
        self._map: mmap.mmap | None = None
        self._file: int | None = None
        self._backed: set[int] = set()  # slots that have their room on the disk
        self._free = deque(range(_SLOTS))
        self._wrecks: dict[str, Sequence[bytes]] = {}  # what each was computing
        self._guilty: set[str] = set()
        self._waited_for: set[str] = set()  # boxes of others

    def open(self) -> None:
        """Begin to note; on a disk that can't be written nothing is."""
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            self._key = shared_secret(self._folder.parent / "flights.key")
            if not self._lock.try_alone():
                return
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            os.truncate(self._file, _SLOTS * _STRIDE)  # sparse: takes what is used
            self._map = mmap.mmap(self._file, 0)
        except OSError as error:
            _log.warning("what is computed is not noted", error=str(error))
        self.look()

    def close(self) -> None:
        """An end in order leaves no wreck."""
        if self._map is not None:
            self._path.unlink(missing_ok=True)
            self._map = None
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()

    @property
    def is_alert(self) -> bool:
        """Whether a worker died lately that was computing."""
        return any(self._wrecks.values())

    @property
    def knows_guilty(self) -> bool:
        """Whether a worker here has told of a request that crashes its model."""
        return bool(self._guilty)

    def recorded(self, session: Session) -> Session:
        """The session, what it computes being noted."""
        return _Recorded(session, self)

    def begin(self, feeds: Mapping[str, Array]) -> int | None:
        """A run begins; give `end` what this returns. On the way of each run: no more than it needs."""
        noted = self._map
        if noted is None:
            return None
        try:
            slot = self._free.pop()  # the one used last: its pages are there
        except IndexError:  # more runs at once than are noted
            return None
        start = slot * _STRIDE
        if slot not in self._backed and not self._back(slot, start):
            return None
        at = first = start + _LENGTH.size
        most = _SLOT_BYTES // (len(feeds) or 1)
        for array in feeds.values():
            data = _bytes_of(array, self._key)
            size = len(data)
            if size > most:
                data, size = data[:most], most
            noted[at : at + size] = data
            at += size
        _LENGTH.pack_into(noted, start, at - first)
        return slot

    def end(self, slot: int | None) -> None:
        """The run ended, well or not."""
        if slot is not None and self._map is not None:
            start = slot * _STRIDE
            (size,) = _LENGTH.unpack_from(self._map, start)
            _LENGTH.pack_into(self._map, start, 0)
            first = start + _LENGTH.size
            self._map[first : first + size] = _NOTHING[:size]
            self._free.append(slot)

    def look(self) -> bool:
        """Look for workers that died, and forget those that did long ago; whether one was found that was not known."""
        try:
            return self._look()
        except OSError as error:  # too many open files, a disk that is gone
            _log.warning("who died is not known", error=str(error))
            return False

    def _look(self) -> bool:
        for path in self._folder.glob("*.box"):
            if path != self._path:
                _declare_if_dead(path)
        self._guilty = {path.stem for path in self._folder.glob("*.guilty") if _is_fresh(path)}
        known = self._wrecks
        self._wrecks = {
            path.name: known[path.name] if path.name in known else _flights(path)
            for path in self._folder.glob("*.wreck")
            if _is_fresh(path)
        }
        return any(flights for name, flights in self._wrecks.items() if name not in known)

    def was_lost(self, feeds: Mapping[str, Array]) -> bool:
        """Whether a worker that died lately was computing this: the first row of each input is in one of its runs.

        A worker that is dying lets go of its lock a little after its callers have noticed, or more than a little on a
        machine that is busy. So where another one computes this, and is seen to end, it is waited for; where that can't
        be seen, too, once in its life and for milliseconds.
        """
        rows = [
            bytes(_bytes_of(array[:1] if array.ndim else array, self._key))
            for array in feeds.values()
        ]
        if any(_holds(flights, rows) for flights in self._wrecks.values()):
            return True
        boxes = [path for path in self._folder.glob("*.box") if path != self._path]
        self._waited_for &= {path.name for path in boxes}
        for path in boxes:
            if (
                path.name not in self._waited_for
                and _holds(_flights(path), rows)
                and self._dies(path)
            ):
                return any(_holds(flights, rows) for flights in self._wrecks.values())
        return False

    def _dies(self, path: Path) -> bool:
        begin = time.monotonic()
        while True:
            ends = lock_holder.is_ending(path)
            _declare_if_dead(path)  # behind the question: it may have ended since
            if not path.exists():
                self.look()
                return True
            if ends is None:
                self._waited_for.add(path.name)
            elif not ends:
                return False
            if time.monotonic() - begin > (_ENDING_SECONDS if ends else _DYING_SECONDS):
                return False
            time.sleep(_LOOK_SECONDS)

    def blame(self, mark: str) -> None:
        """Tell all workers here of a request that crashes its model."""
        self._guilty.add(mark)
        with suppress(OSError):
            (self._folder / f"{mark}.guilty").touch(0o600)

    def is_guilty(self, mark: str) -> bool:
        """Whether a worker here has told so, as of the last look."""
        return mark in self._guilty

    def _back(self, slot: int, start: int) -> bool:
        """Give a slot its room on the disk: a page without it, once the disk is full, would end the process."""
        try:
            if self._file is not None:
                os.posix_fallocate(self._file, start, _STRIDE)
        except OSError:
            self._free.append(slot)
            return False
        self._backed.add(slot)
        return True


class _Recorded:
    """A session whose runs are noted."""

    def __init__(self, session: Session, boxes: FlightBoxes) -> None:
        self._session = session
        self._boxes = boxes

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """As the session's."""
        slot = self._boxes.begin(feeds)
        try:
            return self._session.run(feeds, outputs)
        finally:
            self._boxes.end(slot)


def _bytes_of(array: Array, key: bytes) -> memoryview:
    if array.dtype == object:
        digests = (
            blake2b(str(text).encode(), key=key, digest_size=_DIGEST_BYTES).digest()
            for text in array.ravel()
        )
        return memoryview(b"".join(digests))
    if array.flags.c_contiguous and array.dtype.kind in "fiub" and array.size:
        return array.data.cast("B")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _holds(flights: Sequence[bytes], rows: Sequence[bytes]) -> bool:
    return any(all(row in flight for row in rows) for flight in flights)


def _declare_if_dead(path: Path) -> None:
    """A box that nobody holds becomes a wreck, now."""
    with suppress(OSError), path.open("r+b") as file:  # never a new file: that would hide the wreck
        if not os.fstat(file.fileno()).st_size:  # its worker is about to take it
            return
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # else another was faster
            os.utime(file.fileno())
            path.rename(path.with_suffix(".wreck"))
            _log.warning("a worker died", box=path.name)


def _is_fresh(path: Path) -> bool:
    """Whether it is of lately; an old one is removed."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime <= _FRESH_SECONDS:
            return True
        path.unlink()
    return False


def _flights(path: Path) -> list[bytes]:
    """Inputs of the runs that had not ended."""
    found: list[bytes] = []
    with suppress(OSError), path.open("rb") as file:
        for slot in range(_SLOTS):
            file.seek(slot * _STRIDE)
            head = file.read(_LENGTH.size)
            if len(head) == _LENGTH.size and (length := _LENGTH.unpack(head)[0]):
                found.append(file.read(min(length, _SLOT_BYTES)))
    return found
