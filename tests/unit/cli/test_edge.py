"""Calls that fail: their status and details come out as our own errors."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from services.cli.adapters.edge import call, connect, to_error
from services.cli.adapters.inference import InferenceCall, infer
from services.cli.domain.exit_code import StatusError
from services.rpc.errors import (
    FieldViolation,
    InferplaneError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from services.rpc.interceptor import DETAILS_KEY, code_of, to_status


def _rpc_error(
    code: grpc.StatusCode, text: str, *trailers: tuple[str, Any]
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), text)


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgumentError.of_fields([FieldViolation("a", "1"), FieldViolation("b", "2")]),
        ResourceExhaustedError("full", reason="QUEUE_FULL", metadata={"k": "v"}, retry_after=0.5),
    ],
)
def test_details_come_back(error: InferplaneError) -> None:
    """What the interceptor writes into a status is read again, part by part."""
    trailer = (DETAILS_KEY, to_status(error).SerializeToString())
    back = to_error(_rpc_error(code_of(error), error.message, trailer), "x:1")
    assert type(back) is type(error)
    assert (back.message, back.reason, back.metadata) == (
        error.message,
        error.reason,
        error.metadata,
    )
    assert (back.violations, back.retry_after) == (error.violations, error.retry_after)


def test_status_outside_of_our_tree_is_kept() -> None:
    """A status that nobody of ours gives keeps its code and text."""
    error = to_error(_rpc_error(grpc.StatusCode.UNKNOWN, "no"), "x:1")
    assert isinstance(error, StatusError)
    assert (error.status, error.message) == ("UNKNOWN", "no")


def test_nothing_listens(free_address: str) -> None:
    """A refused connection says what to do; an UNAVAILABLE that came from a server does not."""
    with pytest.raises(UnavailableError, match="start it with: inferplane up") as refused:
        call(free_address, lambda edge: edge.endpoints.ListEndpoints(_list(), timeout=10))
    assert refused.value.metadata == {"address": free_address}
    other = to_error(_rpc_error(grpc.StatusCode.UNAVAILABLE, "no healthy upstream"), "x:1")
    assert other.message == "no healthy upstream"


@contextlib.contextmanager
def _answering(answer: bytes) -> Iterator[str]:
    """A server that gives everybody this answer and hangs up; yields its address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


_PAGE = b"<!DOCTYPE html><html>no such page</html>"
_HTTP = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_HTTP % (b"404 Not Found", len(_PAGE), _PAGE), id="page"),
        pytest.param(_HTTP % (b"200 OK", len(_PAGE), _PAGE), id="page with 200"),
        pytest.param(_HTTP % (b"404 Not Found", 2, b"{}"), id="JSON of somebody else"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="no HTTP"),
    ],
)
def test_something_else_listens(answer: bytes) -> None:
    """What is no edge is told as that, by gRPC and by REST, and nothing of its answer is shown."""
    with _answering(answer) as address:
        told = rf"^what answers at {address} is no inferplane edge; say where yours is with \S+ or \S+$"
        with pytest.raises(UnavailableError, match=told):
            call(address, lambda edge: edge.endpoints.ListEndpoints(_list(), timeout=10))
        with pytest.raises(UnavailableError, match=told):
            infer(InferenceCall(address, "e", None, b"{}", seconds=10))


def test_a_connection_that_breaks_is_not_refused() -> None:
    """Only a refused connection means that nothing listens."""
    text = "failed to connect to all addresses; last error: UNAVAILABLE: recvmsg:Connection reset"
    error = to_error(_rpc_error(grpc.StatusCode.UNAVAILABLE, text), "x:1")
    assert error.message == (
        "can't connect to x:1: UNAVAILABLE: recvmsg:Connection reset; if it speaks TLS: --address https://x:1"
    )


def _list() -> Any:
    from inferplane.registry.v1 import endpoint_service_pb2

    return endpoint_service_pb2.ListEndpointsRequest()


async def test_bad_address_is_told() -> None:
    """An address of another form is refused by the option's name."""
    with pytest.raises(InvalidArgumentError, match=r"^--address: "):
        async with connect("nonsense"):
            pass
