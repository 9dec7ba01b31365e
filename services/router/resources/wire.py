"""Envoy's messages on the wire: the same content always gives the same bytes, on every router."""

from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from services.rpc import address as addresses
from services.rpc.address import Address


def serialized(message: Message) -> bytes:
    """The message's bytes, maps in the order of their keys."""
    return message.SerializeToString(deterministic=True)


def packed(message: Message) -> AnyMessage:
    """The message in an Any; nested Anys were packed the same way."""
    box = AnyMessage()
    box.Pack(message, deterministic=True)
    return box


def extension(name: str, message: Message) -> dict[str, Any]:
    """A named `TypedExtensionConfig` (or an HTTP filter, which has the same shape)."""
    return {"name": name, "typed_config": packed(message)}


def seconds(value: float) -> dict[str, int]:
    """A duration."""
    whole, nanos = divmod(round(value * 1e9), 1_000_000_000)
    return {"seconds": whole, "nanos": nanos}


def number(value: float) -> dict[str, float]:
    """A wrapped number, whose absence would mean a default."""
    return {"value": value}


def flag(*, on: bool) -> dict[str, bool]:
    """A wrapped boolean, whose absence would mean a default."""
    return {"value": on}


def socket(text: str) -> dict[str, Any]:
    """The Envoy address of `host:port` or `unix:/path`."""
    return socket_of(addresses.parse(text))


def socket_of(address: Address) -> dict[str, Any]:
    """The Envoy address of a parsed address."""
    if address.path is not None:
        return {"pipe": {"path": address.path}}
    return {"socket_address": {"address": address.host, "port_value": address.port}}
