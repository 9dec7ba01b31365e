"""What a worker is computing, in a file that outlives it; and what those computed that died.

Envoy tries a request again that a worker died with, on the next worker: if the model crashes on it, that one dies too,
and the next. Nobody but the workers can know: each keeps the inputs of its present runs in a mapped file, which costs
a copy of them. A file whose worker no longer holds its lock is a wreck.
"""

import mmap
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import structlog

from services.worker.adapters.file_lock import FileLock
from services.worker.domain.contents import Array
from services.worker.ports.session import Session

_log = structlog.get_logger(__name__)

_SLOTS = 16  # runs at once that are noted
_SLOT_BYTES = 1 << 20  # of inputs of one run; rows beyond are not noted
_LENGTH = struct.Struct("<Q")
_FRESH_SECONDS = 300.0  # so long requests are compared with a wreck


class FlightBoxes:
    """Flights in a folder that all workers of this machine share."""

    def __init__(self, folder: Path, owner: str) -> None:
        """Assign only; `owner` is this worker's id."""
        self._folder = folder
        self._path = folder / f"{owner}.box"
        self._lock = FileLock(self._path)
        self._map: mmap.mmap | None = None
        self._free = deque(range(_SLOTS))
        self._wrecks: dict[str, Sequence[bytes]] = {}  # what each was computing
        self._alert_until = 0.0

    def open(self) -> None:
        """Begin to note; on a disk that can't be written nothing is."""
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            if not self._lock.try_alone():
                return
            with self._path.open("r+b") as file:
                file.truncate(_SLOTS * (_LENGTH.size + _SLOT_BYTES))  # sparse: takes what is used
                self._map = mmap.mmap(file.fileno(), 0)
        except OSError as error:
            _log.warning("what is computed is not noted", error=str(error))
        self.look()

    def close(self) -> None:
        """An end in order leaves no wreck."""
        if self._map is not None:
            self._path.unlink(missing_ok=True)
            self._map = None
        self._lock.release()

    @property
    def is_alert(self) -> bool:
        """Whether a worker died lately."""
        return time.monotonic() < self._alert_until

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
        start = slot * (_LENGTH.size + _SLOT_BYTES)
        at = first = start + _LENGTH.size
        most = _SLOT_BYTES // (len(feeds) or 1)
        for array in feeds.values():
            data = _bytes_of(array)
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
            _LENGTH.pack_into(self._map, slot * (_LENGTH.size + _SLOT_BYTES), 0)
            self._free.append(slot)

    def look(self) -> bool:
        """Look for workers that died; whether one was found that was not known."""
        for path in self._folder.glob("*.box"):
            if path != self._path:
                _declare_if_dead(path)
        for path in self._folder.glob("*.guilty"):
            _flights_if_fresh(path)
        found = False
        for path in self._folder.glob("*.wreck"):
            if path.name not in self._wrecks:
                self._wrecks[path.name] = flights = _flights_if_fresh(path)
                found = found or bool(flights)
        if found:
            self._alert_until = time.monotonic() + _FRESH_SECONDS
        return found

    def was_lost(self, feeds: Mapping[str, Array]) -> bool:
        """Whether a worker that died lately was computing this: the first row of each input is in one of its runs."""
        if not self.is_alert:
            return False
        rows = [_bytes_of(array[:1] if array.ndim else array) for array in feeds.values()]
        return any(
            all(row.tobytes() in flight for row in rows)
            for flights in self._wrecks.values()
            for flight in flights
        )

    def blame(self, mark: str) -> None:
        """Tell all workers here of a request that crashes its model."""
        with suppress(OSError):
            (self._folder / f"{mark}.guilty").touch(0o600)

    def is_guilty(self, mark: str) -> bool:
        """Whether a worker here has told so."""
        return (self._folder / f"{mark}.guilty").exists()


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


def _bytes_of(array: Array) -> memoryview:
    if array.dtype == object:
        return memoryview("\0".join(map(str, array.ravel())).encode())
    if array.flags.c_contiguous and array.dtype.kind in "fiub" and array.size:
        return array.data.cast("B")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _declare_if_dead(path: Path) -> None:
    """A box that nobody holds becomes a wreck, now."""
    lock = FileLock(path)
    with suppress(OSError):  # another worker was faster
        if lock.try_alone():
            path.touch()
            path.rename(path.with_suffix(".wreck"))
            _log.warning("a worker died", box=path.name)
    lock.release()


def _flights_if_fresh(path: Path) -> Sequence[bytes]:
    """What it was computing; an old one is removed."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime <= _FRESH_SECONDS:
            return _flights(path)
        path.unlink()
    return ()


def _flights(path: Path) -> list[bytes]:
    """Inputs of the runs that had not ended."""
    found = []
    with path.open("rb") as file:
        for slot in range(_SLOTS):
            file.seek(slot * (_LENGTH.size + _SLOT_BYTES))
            head = file.read(_LENGTH.size)
            if len(head) == _LENGTH.size and (length := _LENGTH.unpack(head)[0]):
                found.append(file.read(min(length, _SLOT_BYTES)))
    return found
