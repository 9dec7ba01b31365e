"""Registers methods on a server with their errors mapped: once for each method, not by an interceptor at each call."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from services.rpc.interceptor import ErrorInterceptor


class MappedMethods:
    """Generated `add_…_to_server` functions take it for a server."""

    def __init__(self, server: grpc.aio.Server, errors: ErrorInterceptor) -> None:
        self._server = server
        self._errors = errors

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Serve these methods of a service; those of the same names before them no more."""
        self._server.add_registered_method_handlers(
            service,
            {
                name: self._errors.wrapped(handler, f"/{service}/{name}")
                for name, handler in handlers.items()
            },
        )

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve what these say they serve, unless it is registered by name."""
        mapped = tuple(_Mapped(handler, self._errors) for handler in handlers)
        self._server.add_generic_rpc_handlers(mapped)


class _Mapped(grpc.GenericRpcHandler):
    """Handlers that are looked up at each call."""

    def __init__(self, handlers: grpc.GenericRpcHandler, errors: ErrorInterceptor) -> None:
        self._handlers = handlers
        self._errors = errors
        self._known: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The method's handler, mapped; None: it isn't among these."""
        method = handler_call_details.method
        known = self._known.get(method)
        if known is not None:
            return known
        handler = self._handlers.service(handler_call_details)
        if handler is None:
            return None
        return self._known.setdefault(method, self._errors.wrapped(handler, method))
