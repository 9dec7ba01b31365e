"""A channel to each of several peers, for who asks all of them and not just one."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
from collections.abc import Mapping
from typing import Self

import grpc

from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.channel import connect
from services.rpc.peer_addresses import PeerAddresses
from services.rpc.tls import Security

_LEAVING_SECONDS = 10.0  # for calls to a peer that is not among them any more


class EachPeer:
    """Knows the peers behind a list of addresses and names, which are looked up each second."""

    def __init__(self, address: str, security: Security) -> None:
        """Assign only.

        Args:
            address: as `connect` takes it: one, or several of which some may be away.
            security: of TCP between services.

        Raises FailedPreconditionError where plain TCP is not allowed.
        """
        peers = addresses.parse_peers(address)
        for peer in peers:
            security.files_for(peer)
        self._found = PeerAddresses(peers)
        self._security = security
        self._channels: dict[Address, grpc.aio.Channel] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def newest(self) -> Mapping[Address, grpc.aio.Channel]:
        """Channels to all peers that are known now; they connect when first used. Empty: no name was found yet."""
        current = set(self._found.current)
        for gone in self._channels.keys() - current:
            leaving = asyncio.get_running_loop().create_task(
                self._channels.pop(gone).close(_LEAVING_SECONDS)
            )
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        for peer in current - self._channels.keys():
            self._channels[peer] = connect(str(peer), security=self._security)
        return dict(self._channels)

    async def __aenter__(self) -> Self:
        await self._found.opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._found.close()
        closing = (channel.close() for channel in self._channels.values())
        await asyncio.gather(*self._leaving, *closing)
