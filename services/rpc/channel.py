"""Client channels to other services, with reconnects that are quick enough to recover by."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import grpc

from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.peer_kind import PeerKind
from services.rpc.renewed_channel import RenewedChannel
from services.rpc.tls import Security, TlsFiles

if TYPE_CHECKING:
    from services.rpc.peer_addresses import PeerAddresses

DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_FRAMING_BYTES = 64 * 1024
# Calls go to peers in turn, and only to those that say they serve (grpc.health.v1): a standby gets none. What a peer
# could not answer is asked of another; services call each other only for what does no harm when it is done twice.
_SEVERAL = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": ""},
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "0.5s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
    }
)
# A peer that hangs keeps its share of the calls until its connection is given up.
_SEVERAL_KEEPALIVE = [("grpc.keepalive_time_ms", 2_000), ("grpc.keepalive_timeout_ms", 3_000)]


def options(max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> list[tuple[str, int]]:
    """Channel options that all our clients use."""
    limit = max_message_bytes + _FRAMING_BYTES
    return [
        ("grpc.max_receive_message_length", limit),
        ("grpc.max_send_message_length", limit),
        # Default back-off (1 s, growing to 120 s) would keep a client away long after a server is back.
        ("grpc.initial_reconnect_backoff_ms", 50),
        # This one is the least time that a connection attempt gets.
        ("grpc.min_reconnect_backoff_ms", 5000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Finds a peer that vanished without a FIN under a long quiet stream.
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def connect(
    address: str,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    security: Security | None = None,
) -> grpc.aio.Channel:
    """A channel to `host:port` or `unix:/path`; it connects when first used.

    A list `a:1,b:1`, or a name, is of peers that serve the same: see `_SEVERAL`. Names are looked up each second.

    Args:
        address: of the peer, or of several.
        max_message_bytes: largest message in either direction.
        security: of TCP between services; None: plain, as to an edge on this machine, and then one address.

    Raises FailedPreconditionError where plain TCP is not allowed.
    """
    chosen = options(max_message_bytes)
    if security is None:
        return grpc.aio.insecure_channel(str(addresses.parse(address)), options=chosen)
    peers = addresses.parse_peers(address)
    files = _files(peers, security)
    if addresses.are_several(address):
        # It writes logs, and what does that takes its time to import: commands talk to one edge, and write none.
        from services.rpc.peer_addresses import PeerAddresses

        return PeersChannel(PeerAddresses(peers), peers[0], files, chosen)
    target = str(peers[0])
    if files is None:
        return grpc.aio.insecure_channel(target, options=chosen)
    return RenewedChannel(files.current, lambda: _secure(target, files, chosen))


def _files(peers: Sequence[Address], security: Security) -> TlsFiles | None:
    """What secures all of them: one folder for the whole process, or nothing."""
    return next((found for peer in peers if (found := security.files_for(peer)) is not None), None)


def _secure(
    target: str, files: TlsFiles, chosen: Sequence[tuple[str, str | int]]
) -> grpc.aio.Channel:
    material = files.current()
    credentials = grpc.ssl_channel_credentials(
        material.authorities, material.key, material.certificate
    )
    named = [
        *chosen,
        # Whatever the host is called, a service must be there, and no worker.
        ("grpc.ssl_target_name_override", PeerKind.SERVICE.server_name),
        # Channels share connections with others that seem alike; a new certificate must be shown on a new one.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.aio.secure_channel(target, credentials, options=named)


class PeersChannel(RenewedChannel):
    """Calls go to those of several peers that serve. Streams end with their peer, or when it says that they must."""

    def __init__(
        self,
        found: PeerAddresses,
        first: Address,
        files: TlsFiles | None,
        chosen: Sequence[tuple[str, int]],
    ) -> None:
        """`first` is whom calls complain of while no peer is found."""
        spread: list[tuple[str, str | int]] = [
            *(option for option in chosen if "keepalive" not in option[0]),
            *_SEVERAL_KEEPALIVE,
            ("grpc.service_config", _SEVERAL),
        ]
        self._found = found

        def make() -> grpc.aio.Channel:
            target = _target(found.current, first)
            if files is None:
                return grpc.aio.insecure_channel(target, options=spread)
            return _secure(target, files, spread)

        super().__init__(lambda: (found.current, files and files.current()), make)

    def newest(self) -> grpc.aio.Channel:
        """The channel for a call that begins now."""
        self._found.begin()
        return super().newest()

    async def __aenter__(self) -> Self:
        await self._found.opened()
        return self

    async def close(self, grace: float | None = None) -> None:
        """Close all; calls that run get `grace` seconds."""
        self._found.close()
        await super().close(grace)


def _target(found: Sequence[Address], first: Address) -> str:
    """As gRPC's resolver has it: addresses of one family, or a name of which nothing is known yet."""
    if not found:
        return f"dns:///{first}"
    family = "ipv6" if ":" in found[0].host else "ipv4"
    return f"{family}:{','.join(str(address) for address in found)}"
