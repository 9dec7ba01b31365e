"""The log of requests that have ended: records with a check sum, in segments that can be read one by one.

A segment says all that is needed to read it: subjects come before the rows that name them. What follows a record that
is broken, or cut short, is not believed.
"""

import itertools
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog

from services.worker.adapters import usage_subjects
from services.worker.adapters.usage_subjects import UsageSubjects
from services.worker.domain.usage_row import ROW, ROW_BYTES, UsageRows, UsageSubject

_log = structlog.get_logger(__name__)

_HEAD = struct.Struct("=4sIQII")  # magic, kind, number, length, CRC of all that but itself
_MAGIC = b"IPU1"
_SUBJECT, _ROWS, _TOLD = 1, 2, 3
_SUFFIX = ".log"
_HEAD_CRC = _HEAD.size - 4


@dataclass(frozen=True, slots=True)
class Record:
    """Of one kind; `number` is a subject's, or that of the (first) row."""

    kind: int
    number: int
    data: bytes
    end: int  # where the next one begins

    @property
    def rows(self) -> int:
        """How many it has."""
        return len(self.data) // ROW_BYTES if self.kind == _ROWS else 0


class UsageLog:
    """The writing side; knows the segments of its folder. Raises OSError where the disk does."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        """Assign only; `open` follows."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._file: int | None = None
        self._size = 0  # of the segment that is written
        self._known: dict[int, UsageSubject] = {}  # said in it
        self._sizes: dict[Path, int] = {}  # of the segments before it
        self.next = 0  # number of the next row

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._size + sum(self._sizes.values())

    def open(self) -> None:
        """Go on after the last record that is whole, or begin."""
        found = segments(self._folder)
        if not found:
            self._begin()
            return
        self._sizes = {path: path.stat().st_size for path in found[:-1]}
        last = found[-1]
        self.next, end = first_of(last), 0
        for record in records(last):
            end = record.end
            if record.kind == _ROWS:
                self.next = record.number + record.rows
        self._file = os.open(last, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(self._file, end)
        self._size = end

    def append(self, rows: bytes, subjects: UsageSubjects, told: Mapping[int, bytes]) -> None:
        """Rows with the next numbers; all of them or none."""
        if self._size >= self._segment_bytes:
            self._roll()
        said: dict[int, UsageSubject] = {}
        parts = []
        for number in {int(n) for n in np.frombuffer(rows, ROW)["subject"]}:
            subject = subjects.get(number)
            if self._known.get(number) != subject:
                said[number] = subject
                parts.append(_record(_SUBJECT, number, usage_subjects.encoded(subject)))
        parts += [_record(_TOLD, number, data) for number, data in told.items()]
        parts.append(_record(_ROWS, self.next, rows))
        self._write(b"".join(parts))
        self._known |= said
        self.next += len(rows) // ROW_BYTES

    def sync(self) -> None:
        """What was appended is on the disk afterwards."""
        if self._file is not None:
            os.fdatasync(self._file)

    def drop_before(self, number: int) -> None:
        """Rows before this one are not needed any more."""
        paths = [*self._sizes, segments(self._folder)[-1]] if self._sizes else []
        for path, following in itertools.pairwise(paths):
            if first_of(following) > number:
                return
            try:
                path.unlink(missing_ok=True)
            except OSError as error:  # it is only longer than it need be
                _log.warning("a segment of usage can't be removed", reason=str(error))
                return
            del self._sizes[path]

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            with suppress(OSError):  # the reader stops at what is broken, too
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _begin(self) -> None:
        path = self._folder / f"{self.next:020d}{_SUFFIX}"
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size, self._known = 0, {}

    def _roll(self) -> None:
        self.sync()
        before, size = segments(self._folder)[-1], self._size
        old = self._file
        self._begin()
        if old is not None:
            os.close(old)
        self._sizes[before] = size


def segments(folder: Path) -> list[Path]:
    """In the order in which they were written."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


def first_of(segment: Path) -> int:
    """Number of its first row, whether it has one or not."""
    return int(segment.stem)


def next_row(folder: Path) -> int:
    """Number of the row that follows all that a log has."""
    found = segments(folder)
    if not found:
        return 0
    ends = [r.number + r.rows for r in records(found[-1]) if r.kind == _ROWS]
    return ends[-1] if ends else first_of(found[-1])


def records(segment: Path, start: int = 0) -> Iterator[Record]:
    """Those from an offset on, until one that is broken or not there yet; none of a segment that is gone."""
    try:
        opened = segment.open("rb")
    except FileNotFoundError:
        return
    with opened as file:
        file.seek(start)
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            magic, kind, number, length, crc = _HEAD.unpack(head)
            if magic != _MAGIC:
                return
            data = file.read(length)
            if len(data) < length or zlib.crc32(data, zlib.crc32(head[:_HEAD_CRC])) != crc:
                return
            start += _HEAD.size + length
            yield Record(kind, number, data, start)


def _record(kind: int, number: int, data: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, number, len(data), 0)[:_HEAD_CRC]
    return b"".join((head, zlib.crc32(data, zlib.crc32(head)).to_bytes(4, "little"), data))


class UsageReader:
    """Reads a folder's rows in order, from the first that is kept."""

    def __init__(self, folder: Path) -> None:
        """At the beginning."""
        self.split: int | None = (
            None  # rows from this one on are not read together with those before
        )
        self._folder = folder
        self._segment: Path | None = None
        self._offset = 0
        self._subjects: dict[int, UsageSubject] = {}
        self._following = 0  # its offset after what was read last

    def read(self, most: int) -> UsageRows | None:
        """Up to about so many rows after those that were passed; None: there are none yet."""
        while True:
            if self._segment is None:
                found = segments(self._folder)
                if not found:
                    return None
                self._enter(found[0])
            rows = self._read_segment(most)
            if rows is not None:
                return rows
            following = self._after()
            if following is None:
                return None
            rows = self._read_segment(most)  # what came between the two looks
            if rows is not None:
                return rows
            self._enter(following)

    def passed(self) -> None:
        """What was read last is done with."""
        self._offset = self._following

    def _enter(self, segment: Path) -> None:
        self._segment, self._offset, self._following = segment, 0, 0
        self._subjects = {}

    def _after(self) -> Path | None:
        assert self._segment is not None
        return next((path for path in segments(self._folder) if path > self._segment), None)

    def _read_segment(self, most: int) -> UsageRows | None:
        assert self._segment is not None
        first = count = 0
        pieces: list[bytes] = []
        told: dict[int, bytes] = {}
        for record in records(self._segment, self._offset):
            if record.kind == _SUBJECT:
                subject = usage_subjects.decoded(record.data)
                if pieces and self._subjects.get(record.number, subject) != subject:
                    break  # the number means something else from here on
                self._subjects[record.number] = subject
            elif record.kind == _TOLD:
                told[record.number] = record.data
            elif record.kind == _ROWS:
                if pieces and (record.number != first + count or record.number == self.split):
                    break
                first = first if pieces else record.number
                pieces.append(record.data)
                count += record.rows
                # What is told of rows comes before them: without them it is read once more.
                self._following = record.end
            if count >= most:
                break
        if not pieces:
            return None
        rows = np.frombuffer(b"".join(pieces), ROW)
        told = {number: data for number, data in told.items() if first <= number < first + count}
        return UsageRows(first, rows, dict(self._subjects), told)
