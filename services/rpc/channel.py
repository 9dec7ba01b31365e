"""Client channels to other services, with reconnects that are quick enough to recover by."""

import grpc

from services.rpc import address as addresses
from services.rpc.peer_kind import PeerKind
from services.rpc.renewed_channel import RenewedChannel
from services.rpc.tls import Material, Security

DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_FRAMING_BYTES = 64 * 1024


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

    Args:
        address: of the peer.
        max_message_bytes: largest message in either direction.
        security: of TCP between services; None: plain, as to an edge on this machine.

    Raises FailedPreconditionError where plain TCP is not allowed.
    """
    chosen = options(max_message_bytes)
    files = security.files_for(addresses.parse(address)) if security is not None else None
    if files is None:
        return grpc.aio.insecure_channel(address, options=chosen)
    # Whatever the host is called, a service must be there, and no worker.
    named = [*chosen, ("grpc.ssl_target_name_override", PeerKind.SERVICE.server_name)]

    def showing(material: Material) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(
            material.authorities, material.key, material.certificate
        )
        # Channels share connections with others that seem alike; a new certificate must be shown on a new one.
        return grpc.aio.secure_channel(
            address, credentials, options=[*named, ("grpc.use_local_subchannel_pool", 1)]
        )

    return RenewedChannel(files, showing)
