"""A channel each of whose calls carries the same metadata, such as an API key.

grpc's own interceptors would put a task and a proxy of the stream around each call; this adds to what is sent and
leaves the calls as they are.
"""

from collections.abc import Callable
from typing import Any, Self

import grpc

Pairs = tuple[tuple[str, str], ...]


class KeyedChannel(grpc.aio.Channel):
    """`inner` with `metadata` on each call; closes it when closed."""

    def __init__(self, inner: grpc.aio.Channel, metadata: Pairs) -> None:
        """Assign only."""
        self._inner = inner
        self._metadata = metadata

    def unary_unary(self, *method: Any, **codec: Any) -> Any:
        return self._keyed(self._inner.unary_unary(*method, **codec))

    def unary_stream(self, *method: Any, **codec: Any) -> Any:
        return self._keyed(self._inner.unary_stream(*method, **codec))

    def stream_unary(self, *method: Any, **codec: Any) -> Any:
        return self._keyed(self._inner.stream_unary(*method, **codec))

    def stream_stream(self, *method: Any, **codec: Any) -> Any:
        return self._keyed(self._inner.stream_stream(*method, **codec))

    def _keyed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any = None, *, metadata: Any = (), **options: Any) -> Any:
            return method(request, metadata=(*(metadata or ()), *self._metadata), **options)

        return call

    async def close(self, grace: float | None = None) -> None:
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._inner.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ending: object) -> None:
        await self.close()
