"""Port: what a supervisor tells about its children, as it happens."""

from typing import Protocol


class Narration(Protocol):
    """Called from the supervisor's event loop; must not block and must not fail."""

    def line(self, service: str, raw: str) -> None:
        """A child wrote a line."""

    def started(self, service: str, pid: int) -> None:
        """A child runs."""

    def died(self, service: str, how: str, restart_in: float, last_lines: list[str]) -> None:
        """A child ended unasked and is started again; `last_lines` are given when that happens again and again."""

    def stopped(self, service: str, how: str) -> None:
        """A child that was asked to end has ended."""
