"""Where the worker says whether it serves."""

from typing import Protocol


class Health(Protocol):
    """Health by service name: "" is the whole worker, otherwise a version's resource name."""

    async def set_health(self, service: str, *, serving: bool) -> None:
        """Report SERVING or NOT_SERVING."""
        ...
