"""Calls that fail: their status and details come out as our own errors."""

from typing import Any

import grpc
import pytest

from services.cli.adapters.edge import call, connect, to_error
from services.cli.domain.exit_code import StatusError
from services.rpc.address import free_port
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
    """A refusal by Envoy keeps its code and text."""
    error = to_error(_rpc_error(grpc.StatusCode.PERMISSION_DENIED, "no"), "x:1")
    assert isinstance(error, StatusError)
    assert (error.status, error.message) == ("PERMISSION_DENIED", "no")


def test_nothing_listens() -> None:
    """A refused connection says what to do; an UNAVAILABLE that came from a server does not."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(UnavailableError, match="start it with: inferplane up") as refused:
        call(address, lambda edge: edge.endpoints.ListEndpoints(_list(), timeout=10))
    assert refused.value.metadata == {"address": address}
    other = to_error(_rpc_error(grpc.StatusCode.UNAVAILABLE, "no healthy upstream"), "x:1")
    assert other.message == "no healthy upstream"


def _list() -> Any:
    from inferplane.registry.v1 import endpoint_service_pb2

    return endpoint_service_pb2.ListEndpointsRequest()


async def test_bad_address_is_told() -> None:
    """An address of another form is refused by the option's name."""
    with pytest.raises(InvalidArgumentError, match=r"^--address: "):
        async with connect("nonsense"):
            pass
