"""What is known of callers that came lately: bounded, and those that come again stay."""

from collections.abc import Callable
from typing import Generic, TypeVar

from services.worker.domain.caller import Caller

T = TypeVar("T")


class CallerCache(Generic[T]):
    """Two halves: when the newer one is full, it becomes the older one, and what was in that is forgotten."""

    def __init__(self, most: int) -> None:
        """Begin empty.

        Args:
            most: callers that are remembered at most.
        """
        self._half = max(1, most // 2)
        self._newer: dict[Caller, T] = {}
        self._older: dict[Caller, T] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def get(self, caller: Caller) -> T | None:
        """What is known; None: nothing."""
        found = self._newer.get(caller)
        if found is not None:
            return found
        found = self._older.pop(caller, None)
        if found is not None:
            self.put(caller, found)
        return found

    def put(self, caller: Caller, known: T) -> None:
        """Remember it."""
        if len(self._newer) >= self._half:
            self._older, self._newer = self._newer, {}
        self._newer[caller] = known

    def forget(self, is_meant: Callable[[Caller], bool]) -> None:
        """Forget callers; takes as long as there are callers."""
        self._newer = {
            caller: known for caller, known in self._newer.items() if not is_meant(caller)
        }
        self._older = {
            caller: known for caller, known in self._older.items() if not is_meant(caller)
        }
