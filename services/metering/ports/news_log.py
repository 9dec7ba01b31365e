"""Changes that processes on one database tell each other."""

from typing import Protocol


class NewsLog(Protocol):
    """Rows that grow in number with whatever ever changed. Any number of callers at once; UnavailableError."""

    async def newest_news(self) -> int:
        """The revision of the last change."""
        ...

    async def forget_news(self, until: int) -> int:
        """Forget some of the changes up to a revision; how many, 0: there are no more."""
        ...
