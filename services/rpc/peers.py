"""Who may call a server over TLS, by what the caller's certificate says that it is."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

from collections.abc import Collection, Mapping
from typing import Any

import grpc

from services.rpc import address as addresses
from services.rpc.errors import PermissionDeniedError
from services.rpc.interceptor import Guard
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import Security, kinds_of

_URIS = "peer_uri"  # as gRPC calls the URIs of a peer's certificate


def guard(
    address: str,
    security: Security,
    allowed: Collection[PeerKind],
    otherwise: Mapping[str, Collection[PeerKind]] | None = None,
) -> Guard | None:
    """The guard of a server at `address`; None where no certificates are shown.

    Args:
        address: where it listens.
        security: of TCP.
        allowed: who may call it.
        otherwise: the same for single services or methods: `package.Service`, `package.Service/Method`.
    """
    if security.files is None or addresses.parse(address).path is not None:
        return None
    others = otherwise or {}

    def check(context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
        said = kinds_of(uri.decode() for uri in context.auth_context().get(_URIS, ()))
        name = method[1:]
        service = name[: name.rfind("/")]
        if said.isdisjoint(others.get(name, others.get(service, allowed))):
            raise refused(said, method)

    return check


def refused(said: Collection[PeerKind], method: str) -> PermissionDeniedError:
    """Why a peer with such a certificate may not call."""
    shown = ", ".join(sorted(said)) or "nothing that is known here"
    return PermissionDeniedError(
        f"the caller's certificate says that it is {shown}; {method} is not for it",
        reason="WRONG_PEER",
        metadata={"peer": shown, "method": method},
    )
