"""Client channels to other services, with reconnects that are quick enough to recover by."""

import grpc

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


def connect(address: str, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> grpc.aio.Channel:
    """A channel to `host:port` or `unix:/path`; it connects when first used."""
    return grpc.aio.insecure_channel(address, options=options(max_message_bytes))
