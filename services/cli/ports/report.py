"""Port: where long work says what it does."""

from typing import Protocol


class Report(Protocol):
    """Tells the person at the terminal; called from one task at a time, never fails."""

    def say(self, text: str) -> None:
        """One line of what has just happened."""

    def begin(self, label: str, total: int, done: int) -> None:
        """Bytes are going to move: `done` of `total` are there already. Replaces what was begun before."""

    def advance(self, count: int) -> None:
        """So many more bytes have moved."""

    def finish(self) -> None:
        """What was begun is over."""
