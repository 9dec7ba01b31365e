"""A channel in whose place a new one is put when what it was made for is no longer so: certificate, addresses."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
from collections.abc import Callable
from typing import Any, Self, cast

import grpc

_RETIRED_SECONDS = 3600.0  # for calls that run on the channel before


class RenewedChannel(grpc.aio.Channel):
    """Calls begin on the newest channel; those that run end where they began, unless they take an hour."""

    def __init__(self, current: Callable[[], object], make: Callable[[], grpc.aio.Channel]) -> None:
        """`make` a channel for what is `current`; another one once it has become something else."""
        self._current = current
        self._make = make
        self._made_for = current()
        self._channel = make()
        self._retired: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    def newest(self) -> grpc.aio.Channel:
        """The channel for a call that begins now."""
        current = self._current()
        if current != self._made_for:
            before, self._channel = self._channel, self._make()
            self._made_for = current
            self._retired[before] = asyncio.get_running_loop().create_task(self._retire(before))
        return self._channel

    async def _retire(self, channel: grpc.aio.Channel) -> None:
        await channel.close(_RETIRED_SECONDS)
        self._retired.pop(channel, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close all; calls that run get `grace` seconds."""
        retired = dict(self._retired)
        for task in retired.values():
            task.cancel()
        await asyncio.gather(*(c.close(grace) for c in (self._channel, *retired)))

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 - gRPC's
        """Of the newest."""
        return self.newest().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Of the newest."""
        await self.newest().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Of the newest."""
        await self.newest().channel_ready()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, "stream_stream", args, kwargs)


class _Method:
    """A method that stubs hold for as long as they live."""

    def __init__(self, channel: RenewedChannel, form: str, args: Any, kwargs: Any) -> None:
        self._channel = channel
        self._form = form
        self._args = args
        self._kwargs = kwargs
        self._of: grpc.aio.Channel | None = None
        self._call: Callable[..., Any] = cast(Any, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        newest = self._channel.newest()
        if newest is not self._of:
            self._of, self._call = newest, getattr(newest, self._form)(*self._args, **self._kwargs)
        return self._call(*args, **kwargs)
