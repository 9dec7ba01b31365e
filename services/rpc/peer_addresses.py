"""The hosts behind the names of a list of peers, looked up again and again: names lead elsewhere when peers move."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import structlog

from services.rpc.address import Address

_log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 1.0  # a peer that moves is found that soon; what a name server says of keeping answers is not heeded
_FIRST_SECONDS = 2.0  # that a channel's opening waits for the first answer

_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)

Lookup = Callable[[str, int], Awaitable[Sequence[Address]]]


async def look_up(host: str, port: int) -> Sequence[Address]:
    """As this machine resolves names. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(host=str(where[0]), port=port) for *_, where in found]


class PeerAddresses:
    """Knows the peers' addresses. Names that can't be looked up stay what they were: no name server, no harm."""

    def __init__(self, peers: Sequence[Address], lookup: Lookup | None = None) -> None:
        """Assign only; `begin` looks up."""
        self._peers = peers
        self._lookup = lookup or look_up
        self._found: dict[Address, tuple[Address, ...]] = {
            peer: (peer,) for peer in peers if not peer.is_name
        }
        self._unknown: set[Address] = set()  # names that the log has been told of
        self._looking: asyncio.Task[None] | None = None
        self._first = asyncio.Event()

    @property
    def current(self) -> tuple[Address, ...]:
        """All that are known, in one order whatever order answers come in; empty: none yet."""
        found = {address for addresses in self._found.values() for address in addresses}
        # gRPC takes addresses of one family together.
        old = {address for address in found if ":" not in address.host}
        return tuple(sorted(old or found, key=lambda address: (address.host, address.port)))

    def begin(self) -> None:
        """Look up from now on, if there are names; inside a running loop."""
        if self._looking is None and any(peer.is_name for peer in self._peers):
            self._looking = asyncio.get_running_loop().create_task(self._run())

    async def opened(self) -> None:
        """Begin, and wait a little for the first answers."""
        self.begin()
        if self._looking is None:
            return
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await self._first.wait()
        except TimeoutError:
            _log.warning("names are looked up slowly", peers=[str(peer) for peer in self._peers])

    def close(self) -> None:
        """Look up no more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _run(self) -> None:
        names = [peer for peer in self._peers if peer.is_name]
        while True:
            await asyncio.gather(*map(self._find, names))
            self._first.set()
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _find(self, peer: Address) -> None:
        try:
            found = tuple(sorted(set(await self._lookup(peer.host, peer.port)), key=str))
        except OSError as error:
            if getattr(error, "errno", None) in _NO_SUCH_NAME and len(self._found) > 1:
                self._found.pop(peer, None)  # its address may be another's by now
            if peer not in self._unknown:
                self._unknown.add(peer)
                _log.warning("name not found, trying again", name=peer.host, reason=str(error))
            return
        if found != self._found.get(peer):
            _log.info("peers found", name=peer.host, addresses=[str(a) for a in found])
        self._unknown.discard(peer)
        self._found[peer] = found
