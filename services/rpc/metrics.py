"""Call metrics: how many calls of each method ended with which code, and how long they took."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from services.rpc.errors import InferplaneError

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class MetricsInterceptor(grpc.aio.ServerInterceptor):
    """Counts every call of a server. Sits inside the error mapping, so it sees domain errors with their kinds."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Declare the metrics in a registry; one interceptor per registry."""
        self._calls = Counter(
            "inferplane_rpc_calls",
            "Calls that ended, by code.",
            ["method", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "inferplane_rpc_duration_seconds",
            "How long calls took; streams until their end.",
            ["method"],
            buckets=_BUCKETS,
            registry=registry,
        )

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the method's handler, wrapped."""
        handler = await continuation(handler_call_details)
        if (
            handler is None
        ):  # unknown method: its name is the caller's, and would be a label without bound
            return handler
        method = handler_call_details.method
        if handler.response_streaming:
            return self._wrap_stream(handler, method)
        return self._wrap_unary(handler, method)

    @contextmanager
    def _measured(self, method: str, context: Any) -> Iterator[None]:
        began = time.perf_counter()
        code = "CANCELLED"  # what no exception below says: the caller went away
        try:
            yield
            code = "OK"
        except InferplaneError as error:
            code = error.kind.name
            raise
        except grpc.aio.AbortError:
            code = context.code().name
            raise
        except asyncio.CancelledError:
            if (told := context.code()) is not None:  # the server ended it, and says why
                code = told.name
            raise
        except Exception:
            code = "INTERNAL"
            raise
        finally:
            self._calls.labels(method, code).inc()
            self._seconds.labels(method).observe(time.perf_counter() - began)

    def _wrap_unary(self, handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary

        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            with self._measured(method, context):
                return await behaviour(request, context)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)

    def _wrap_stream(self, handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream

        async def generate(
            request: Any, context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[Any]:
            with self._measured(method, context):
                async for response in behaviour(request, context):
                    yield response

        async def write(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            with self._measured(method, context):
                await behaviour(request, context)

        # Both forms that grpc.aio takes, as in `interceptor.py`.
        call = generate if inspect.isasyncgenfunction(behaviour) else write

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(call, handler.request_deserializer, handler.response_serializer)
