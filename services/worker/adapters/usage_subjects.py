"""Subjects of the requests that are open, by number, in a mapped file beside their table."""

import mmap
import os
import struct
import zlib
from collections.abc import Set as AbstractSet
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import orjson

from services.worker.domain.usage_row import UsageKind, UsageSubject

_PLACE_BYTES = 1024
_HEAD = struct.Struct("=II")  # length, CRC
_LONGEST = 128  # characters of a name; longer ones are told by a digest


class UsageSubjects:
    """Numbers of subjects; bounded, so numbers that no open request has are given anew."""

    def __init__(self, path: Path) -> None:
        """Assign only; `create` or `open` follows."""
        self._path = path
        self._map: mmap.mmap
        self._numbers: dict[UsageSubject, int] = {}
        self._subjects: dict[int, UsageSubject] = {}
        self._free: list[int] = []

    def create(self, places: int) -> None:
        """None is known."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, places * _PLACE_BYTES)
            self._map = mmap.mmap(file, 0)
        finally:
            os.close(file)
        self._free = list(range(places))[::-1]

    def open(self) -> None:
        """Those that a process left. Raises OSError, ValueError."""
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(file, 0)
        finally:
            os.close(file)
        for number in range(len(self._map) // _PLACE_BYTES):
            subject = self._read(number)
            if subject is not None:
                self._subjects[number] = subject

    def close(self) -> None:
        """Let go of it."""
        self._map.close()

    def number(self, subject: UsageSubject) -> int | None:
        """Its number; None: no place is left, so `forget` what is not in use."""
        number = self._numbers.get(subject)
        if number is None and self._free:
            number = self._free.pop()
            self._write(number, subject)
            self._numbers[subject] = number
            self._subjects[number] = subject
        return number

    def forget(self, kept: AbstractSet[int]) -> None:
        """All but those with these numbers."""
        for subject, number in list(self._numbers.items()):
            if number not in kept:
                del self._numbers[subject], self._subjects[number]
                self._free.append(number)

    def get(self, number: int) -> UsageSubject:
        """What a number means; without a name if that was lost with the machine."""
        return self._subjects.get(number) or UsageSubject("", "", "", "", "")

    def _write(self, number: int, subject: UsageSubject) -> None:
        data = encoded(subject)
        at = number * _PLACE_BYTES
        self._map[at + _HEAD.size : at + _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, at, len(data), zlib.crc32(data))

    def _read(self, number: int) -> UsageSubject | None:
        at = number * _PLACE_BYTES
        length, crc = _HEAD.unpack_from(self._map, at)
        data = self._map[at + _HEAD.size : at + _HEAD.size + length]
        if not length or length > _PLACE_BYTES - _HEAD.size or zlib.crc32(data) != crc:
            return None
        return decoded(data)


def encoded(subject: UsageSubject) -> bytes:
    """As bytes, always fewer than a place has."""
    data = _json(subject)
    if len(data) <= _PLACE_BYTES - _HEAD.size:
        return data
    return _json(
        replace(
            subject,
            project=_short(subject.project),
            key=_short(subject.key),
            endpoint=_short(subject.endpoint),
            version=_short(subject.version),
        )
    )


def decoded(data: bytes) -> UsageSubject:
    """From `encoded`."""
    project, key, endpoint, version, digest, kind = orjson.loads(data)
    return UsageSubject(project, key, endpoint, version, digest, UsageKind(kind))


def _json(subject: UsageSubject) -> bytes:
    names = (subject.project, subject.key, subject.endpoint, subject.version, subject.digest)
    return orjson.dumps([*names, int(subject.kind)])


def _short(name: str) -> str:
    return name if len(name.encode()) <= _LONGEST else sha256(name.encode()).hexdigest()
