"""A number that grows, and waiting until it has: how readers hear of news without being waited for."""

import asyncio

from services.rpc.errors import UnavailableError


class Pulse:
    """Holds the newest value. Telling costs the same whether nobody or everybody waits."""

    def __init__(self, value: int) -> None:
        self.value = value
        self._news = asyncio.Event()
        self._closed = False

    def tell(self, value: int) -> None:
        """Wake all who wait for a value below this one."""
        self.value = value
        self._wake()

    def close(self) -> None:
        """End all waiting, now and later."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait_beyond(self, value: int) -> int:
        """The first value seen that is greater. UnavailableError (STOPPING) once closed."""
        while not self._closed and self.value <= value:
            await self._news.wait()
        if self._closed:
            raise UnavailableError(
                "this service is stopping; connect again", reason="STOPPING", retry_after=0.5
            )
        return self.value
