"""The platform's APIs as the command line calls them: gRPC through the edge, and failures as our own errors."""

import asyncio
import re
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeVar

import grpc
from google.rpc import error_details_pb2, status_pb2
from inferplane.discovery.v1 import discovery_service_pb2_grpc
from inferplane.generation.v1 import generation_service_pb2_grpc
from inferplane.metering.v1 import (
    api_key_service_pb2_grpc,
    budget_service_pb2_grpc,
    ledger_service_pb2_grpc,
    price_service_pb2_grpc,
    project_service_pb2_grpc,
    spending_alert_service_pb2_grpc,
    usage_report_service_pb2_grpc,
)
from inferplane.registry.v1 import (
    artifact_service_pb2_grpc,
    endpoint_service_pb2_grpc,
    model_service_pb2_grpc,
    placement_service_pb2_grpc,
)
from inferplane.router.v1 import router_service_pb2_grpc

from services.cli.adapters import access, edge_target
from services.cli.domain import failures
from services.cli.domain.exit_code import StatusError
from services.rpc.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InferplaneError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)

T = TypeVar("T")

CALL_SECONDS = 15.0  # longest time for a call that only reads or writes records
FINISH_SECONDS = 900.0  # the registry reads and checks a whole artifact in it

_KINDS: tuple[type[InferplaneError], ...] = (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
_BY_STATUS = {kind.kind.name: kind for kind in _KINDS}
_ABOUT_KEYS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_DETAILS_KEY = "grpc-status-details-bin"
# Parts of gRPC's own texts; it tells these cases apart in no other way.
_NO_CONNECTION = "ailed to connect"
_REFUSED = re.compile(r"Connection refused|No such file or directory")
_NOT_TRUSTED = re.compile(
    r"CERTIFICATE|ertificate|Hostname Verification|Tls handshake|WRONG_VERSION|Unwrap failed"
)
_CLOSED = re.compile(r"Socket closed|Connection reset")
_OWN_DEADLINE = "Deadline Exceeded"
_NO_GRPC = re.compile(r"Failed parsing HTTP/2|http1\.x server|Received http2 header with status")


class Edge:
    """Clients of every API, on one channel."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        """`channel` is owned by the caller."""
        self.address = address
        self.channel = channel
        self.models = model_service_pb2_grpc.ModelServiceStub(channel)
        self.artifacts = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
        self.endpoints = endpoint_service_pb2_grpc.EndpointServiceStub(channel)
        self.placements = placement_service_pb2_grpc.PlacementServiceStub(channel)
        self.discovery = discovery_service_pb2_grpc.DiscoveryServiceStub(channel)
        self.generation = generation_service_pb2_grpc.GenerationServiceStub(channel)
        self.projects = project_service_pb2_grpc.ProjectServiceStub(channel)
        self.api_keys = api_key_service_pb2_grpc.ApiKeyServiceStub(channel)
        self.budgets = budget_service_pb2_grpc.BudgetServiceStub(channel)
        self.prices = price_service_pb2_grpc.PriceServiceStub(channel)
        self.ledger = ledger_service_pb2_grpc.LedgerServiceStub(channel)
        self.usage = usage_report_service_pb2_grpc.UsageReportServiceStub(channel)
        self.alerts = spending_alert_service_pb2_grpc.SpendingAlertServiceStub(channel)
        self.router = router_service_pb2_grpc.RouterServiceStub(channel)


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[Edge]:
    """Clients on a channel to `address` that is closed at the end."""
    target = str(edge_target.parse(address))
    async with access.open_channel(target) as channel:
        yield Edge(target, channel)


def call(address: str, work: Callable[[Edge], Awaitable[T]]) -> T:
    """Run `work` with clients of the edge at `address`; failed calls come out as our errors."""

    async def run() -> T:
        _cancel_on_interrupt()
        async with connect(address) as edge:
            try:
                return await work(edge)
            except grpc.aio.AioRpcError as error:
                raise_error(error, address)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


def _cancel_on_interrupt() -> None:
    """Let Ctrl-C cancel the running task.

    asyncio's own handler has no wake-up descriptor: a signal that comes just before the loop blocks would wait for
    the next event, which on a quiet stream may never come.
    """
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)


def raise_error(error: grpc.aio.AioRpcError, address: str) -> NoReturn:
    """Raise a failed call as one of our errors."""
    raise to_error(error, address) from error


def to_error(error: grpc.aio.AioRpcError, address: str) -> InferplaneError:
    """A failed call as one of our errors, with its details."""
    text = error.details() or error.code().name
    if error.code() is grpc.StatusCode.UNAVAILABLE and _NO_CONNECTION in text:
        return _no_connection(text, address)
    if _NO_GRPC.search(text):
        return failures.no_edge(address)
    if text == _OWN_DEADLINE:
        text = "there was no answer in the time that the call had"
    if error.code() in _ABOUT_KEYS:
        text = failures.about_key(text, access.origin(address))
    kind = _BY_STATUS.get(error.code().name)
    if kind is None:
        return StatusError(error.code().name, text)
    return kind(text, **_details(error))


def _no_connection(text: str, address: str) -> UnavailableError:
    """Why there is no connection, by what gRPC says of its last attempt."""
    if _REFUSED.search(text):
        return failures.not_listening(address)
    if _NO_GRPC.search(text):
        return failures.no_edge(address)
    last = text.rpartition("last error: ")[2]
    if _CLOSED.search(last) and not edge_target.parse(address).is_secure:
        return failures.closes(address, last)
    if _NOT_TRUSTED.search(last):
        return failures.not_trusted(address, last)
    return UnavailableError(
        f"can't connect to {address}: {last}",
        reason="NO_CONNECTION",
        metadata={"address": address},
    )


def _details(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """What the status's details say, as arguments of an error."""
    found: dict[str, Any] = {}
    trailers = dict(error.trailing_metadata() or ())
    raw = trailers.get(_DETAILS_KEY)
    if not isinstance(raw, bytes):
        return found
    for detail in status_pb2.Status.FromString(raw).details:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            found |= {"reason": info.reason, "metadata": dict(info.metadata)}
        elif detail.Unpack(bad):
            found["violations"] = [
                FieldViolation(v.field, v.description) for v in bad.field_violations
            ]
        elif detail.Unpack(retry):
            found["retry_after"] = retry.retry_delay.ToNanoseconds() / 1e9
    return found


async def pages(fetch: Callable[[str], Awaitable[Any]], items: Callable[[Any], list[T]]) -> list[T]:
    """All items of a list call: `fetch` takes a page token, `items` finds the items of a page."""
    found: list[T] = []
    token = ""
    while True:
        page = await fetch(token)
        found.extend(items(page))
        token = page.next_page_token
        if not token:
            return found
