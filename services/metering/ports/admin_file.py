"""The file with the first admin's token."""

from typing import Protocol


class AdminFile(Protocol):
    """Only this system's user may read it."""

    def read(self) -> str | None:
        """The token in it; None if there is no such file."""
        ...

    def write(self, token: str) -> None:
        """Put a token in place of what was there; all or nothing, and durable."""
        ...
