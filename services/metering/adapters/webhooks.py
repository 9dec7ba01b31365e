"""Webhooks, as most meterings have none: what talks HTTP is imported and made for the first notice."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from services.metering.domain.spending import Notice

if TYPE_CHECKING:
    import httpx

    from services.metering.adapters.http_webhook import HttpWebhook


class Webhooks:
    """A Webhook. Closed at the end of its block."""

    def __init__(self, currency: str) -> None:
        """Assign only.

        Args:
            currency: of the amounts told.
        """
        self._currency = currency
        self._made: HttpWebhook | None = None
        self._making = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def post(self, notice: Notice) -> bool:
        async with self._making:
            if self._made is None:
                self._made = await self._make()
        return await self._made.post(notice)

    async def _make(self) -> "HttpWebhook":
        # Reading the usual authorities takes a tenth of a second, in which others want the loop.
        client = await asyncio.to_thread(_client)
        await self._stack.enter_async_context(client)
        from services.metering.adapters.http_webhook import HttpWebhook

        return HttpWebhook(client, self._currency)


def _client() -> "httpx.AsyncClient":
    import httpx

    return httpx.AsyncClient(trust_env=False)
