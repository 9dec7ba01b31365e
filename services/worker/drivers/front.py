"""The worker's fast front: a gRPC server on a unix socket or TLS, in the event loop's own thread."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.errors import InferplaneError, UnavailableError
from services.worker.domain.call_head import Headers
from services.worker.domain.grpc_message import ByteBudget
from services.worker.drivers.front_connection import FrontConnection, FrontDesk
from services.worker.ports.call import Method, StreamMethod
from services.worker.ports.http2 import MakeCodec

_log = structlog.get_logger(__name__)

_BACKLOG = 512
_CLOSING_SECONDS = 1.0
_HANDSHAKE_SECONDS = 10.0
_SWEEP_SECONDS = 0.05  # how late a deadline may be noticed
_ARRIVING_MESSAGES = 8  # of the largest size, at once
_UNSENT_MESSAGES = 4  # of the largest size, per connection


def _nobody(_certificate: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Door:
    """Who comes in by TCP."""

    context: ssl.SSLContext
    admits: Callable[
        [Mapping[str, Any]], bool
    ]  # by the certificate, as `SSLSocket.getpeercert` has it
    asks: Callable[[Mapping[str, Any]], bool]  # likewise: who else may, but for health only


class Front:
    """Listens, and owns connections; `flush` is to be called after each batch of answers."""

    def __init__(
        self,
        *,
        methods: Mapping[bytes, Method],
        make_codec: MakeCodec,
        status_of: Callable[[InferplaneError], Headers],
        max_message_bytes: int,
        streams: Mapping[bytes, StreamMethod] | None = None,
    ) -> None:
        """Assign only.

        Args:
            methods: by path; may grow until `start`.
            make_codec: of each connection.
            status_of: an error's trailers.
            max_message_bytes: largest payload in either direction.
            streams: methods whose requests are many messages, by path; may grow too.
        """
        self._desk = FrontDesk(
            methods=methods,
            make_codec=make_codec,
            status_of=status_of,
            max_message_bytes=max_message_bytes,
            arriving=ByteBudget(_ARRIVING_MESSAGES * max_message_bytes),
            max_unsent_bytes=_UNSENT_MESSAGES * max_message_bytes,
            users=frozenset({0, os.getuid()}),
            admits=_nobody,
            deadlines_set=self._sweep_soon,
            touched=self._touched,
            streams={} if streams is None else streams,
        )
        self._dirty: list[FrontConnection] = []
        self._flushing: asyncio.Handle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    @property
    def connections(self) -> int:
        """Peers that are connected."""
        return len(self._desk.connections)

    @property
    def running(self) -> int:
        """Calls that have no status yet."""
        return sum(len(connection.calls) for connection in self._desk.connections)

    async def start(self, address: Address, door: Door | None = None) -> Address:
        """Listen, and return the address. Raises UnavailableError if it is taken.

        Args:
            address: a unix socket, or TCP.
            door: of TCP, which is not served without.
        """
        self._loop = asyncio.get_running_loop()
        if address.path is None:
            assert door is not None
            return await self._start_on_tcp(address, door)
        self._path = Path(address.path)
        listening = _bound(address)
        self._server = await self._loop.create_unix_server(
            lambda: FrontConnection(self._desk), sock=listening, backlog=_BACKLOG
        )
        return address

    async def _start_on_tcp(self, address: Address, door: Door) -> Address:
        self._desk.admits, self._desk.asks = door.admits, door.asks
        try:
            self._server = await self._loop.create_server(
                lambda: FrontConnection(self._desk),
                address.host,
                address.port,
                ssl=door.context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_CLOSING_SECONDS,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise _taken(address) from error
        return Address(host=address.host, port=self._server.sockets[0].getsockname()[1])

    def flush(self) -> None:
        """Write the answers that calls have been given: one write for each connection."""
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    async def stop(self, grace: float) -> None:
        """Refuse new calls, finish running ones for `grace` seconds, end the rest; again is harmless."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        for connection in list(self._desk.connections):
            connection.goaway()
        try:
            async with asyncio.timeout(grace):
                while self.running:
                    self._desk.emptied.clear()
                    await self._desk.emptied.wait()
        except TimeoutError:
            _log.warning("front closed with calls in flight", in_flight=self.running)
        self.flush()
        await self._close()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _close(self) -> None:
        """Close all connections; TLS asks the peer to agree, which may take what it likes."""
        for connection in list(self._desk.connections):
            connection.close()
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                while self._desk.connections:
                    self._desk.emptied.clear()
                    await self._desk.emptied.wait()
        except TimeoutError:
            for connection in list(self._desk.connections):
                connection.abort()

    def _touched(self, connection: FrontConnection) -> None:
        self._dirty.append(connection)
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flushing = None
        self.flush()

    def _sweep_soon(self) -> None:
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Callers usually reset a call at their deadline; this is for those who don't."""
        self._sweeping = None
        now, waiting = time.monotonic(), False
        for connection in list(self._desk.connections):
            connection.expire(now)
            waiting = waiting or any(c.deadline is not None for c in connection.calls.values())
        if waiting:
            self._sweep_soon()


def _bound(address: Address) -> socket.socket:
    """A socket that belongs to this user alone, in place of a dead one."""
    addresses.prepare_socket(address)
    path = Path(address.path or "")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        if _is_dead(path):
            path.unlink()
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise _taken(address) from error
    finally:
        os.umask(old)
    made.settimeout(0)
    return made


def _taken(address: Address) -> UnavailableError:
    return UnavailableError(
        f"can't listen on {address}: it is taken, or not an address of this machine",
        reason="ADDRESS_UNAVAILABLE",
        metadata={"address": str(address)},
    )


def _is_dead(path: Path) -> bool:
    """Whether a socket lies there to which nobody listens."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False
