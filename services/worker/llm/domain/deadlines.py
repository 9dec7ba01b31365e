"""When requests must have ended: who is late is found at once, who ended in time is forgotten sooner or later."""

import heapq
from collections.abc import Container, Sized
from typing import Protocol

from services.worker.llm.domain.generation import RequestId

_FEW = 64  # entries that may be out of date before they are cleared away


class _Open(Container[RequestId], Sized, Protocol):
    """Requests that have not ended."""


class Deadlines:
    """Earliest first. `now` is of the same clock as the deadlines."""

    def __init__(self, still_open: _Open) -> None:
        """`still_open` is looked at whenever that matters."""
        self._open = still_open
        self._entries: list[tuple[float, RequestId]] = []

    def add(self, deadline: float, number: RequestId) -> None:
        """A request must have ended by then."""
        heapq.heappush(self._entries, (deadline, number))
        if len(self._entries) > 2 * len(self._open) + _FEW:
            self._entries = [entry for entry in self._entries if entry[1] in self._open]
            heapq.heapify(self._entries)

    def next(self) -> float | None:
        """The earliest of an open request; None: there is none."""
        entries = self._entries
        while entries and entries[0][1] not in self._open:
            heapq.heappop(entries)
        return entries[0][0] if entries else None

    def passed(self, now: float) -> list[RequestId]:
        """Open requests that are late; told once."""
        late = []
        while (deadline := self.next()) is not None and deadline <= now:
            late.append(heapq.heappop(self._entries)[1])
        return late
