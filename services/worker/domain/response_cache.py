"""Answers that are kept for equal requests: bounded in bytes, given up by age and by disuse. `now` is an argument."""

import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from services.worker.domain.assignment import CacheLimits
from services.worker.domain.contents import Array
from services.worker.domain.request_digest import RequestDigest

# What an entry occupies beside its data: key, entry, dictionaries; and for each output array and name.
ENTRY_BYTES = 512
ARRAY_BYTES = 256


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer."""

    outputs: Mapping[str, Array]
    size: int  # bytes, with what holds it
    until: float | None  # when it is too old; None: never


@dataclass(slots=True)
class ResponseCache:
    """Answers by what was asked; the one used longest ago goes first."""

    limits: CacheLimits
    _kept: OrderedDict[RequestDigest, Kept] = field(default_factory=OrderedDict)  # last used last
    _by_age: dict[RequestDigest, None] = field(default_factory=dict)  # oldest first
    _bytes: int = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes that are occupied, never more than the limit."""
        return self._bytes

    def get(self, key: RequestDigest, now: float) -> Mapping[str, Array] | None:
        """The answer, if there is one that is not too old; nobody may change its arrays."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until is not None and kept.until <= now:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept.outputs

    def put(self, key: RequestDigest, outputs: Mapping[str, Array], now: float) -> bool:
        """Keep a copy, in place of an older one; False if it is larger than all that may be kept."""
        self._drop_old(now)
        size = kept_size(outputs)
        if size > self.limits.max_bytes:
            return False
        if key in self._kept:
            self._drop(key)
        while self._bytes + size > self.limits.max_bytes:
            self._drop(next(iter(self._kept)))
        until = now + self.limits.ttl if self.limits.ttl else None
        self._kept[key] = Kept({name: _copy(array) for name, array in outputs.items()}, size, until)
        self._by_age[key] = None
        self._bytes += size
        return True

    def check(self) -> None:
        """Raise AssertionError if sums or orders are not those of what is kept."""
        if (
            self._bytes != sum(kept_size(kept.outputs) for kept in self._kept.values())
            or self._bytes > self.limits.max_bytes
            or self._kept.keys() != self._by_age.keys()
        ):
            raise AssertionError("the cache's sums differ from what it keeps")

    def _drop_old(self, now: float) -> None:
        """All live equally long, so the oldest are too old first."""
        while self._by_age:
            key = next(iter(self._by_age))
            until = self._kept[key].until
            if until is None or until > now:
                return
            self._drop(key)

    def _drop(self, key: RequestDigest) -> None:
        self._bytes -= self._kept.pop(key).size
        del self._by_age[key]


def kept_size(outputs: Mapping[str, Array]) -> int:
    """Bytes that an answer occupies when it is kept."""
    return ENTRY_BYTES + sum(
        ARRAY_BYTES + sys.getsizeof(name) + _data_size(array) for name, array in outputs.items()
    )


def _data_size(array: Array) -> int:
    if array.dtype == object:
        return array.nbytes + sum(sys.getsizeof(text) for text in array.ravel())
    return array.nbytes


def _copy(array: Array) -> Array:
    """Its own data: a view would keep the whole batch that it was computed with."""
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy
