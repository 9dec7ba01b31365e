"""One HTTP request to `host:port` or a unix socket."""

import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.cli.domain import failures
from services.rpc.address import Address
from services.rpc.errors import DeadlineExceededError, UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def send(address: Address, request: Request, secured: ssl.SSLContext | None = None) -> Answer:
    """Send one request, by TLS if it is `secured`; any HTTP status is an answer, an error tells that none came."""
    if address.path is not None:
        connection: http.client.HTTPConnection = _UnixConnection(address.path, request.timeout)
    elif secured is not None:
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=request.timeout, context=secured
        )
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=request.timeout)
    try:
        connection.request(request.method, request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise failures.not_listening(str(address)) from error
    except ssl.SSLError as error:
        raise failures.not_trusted(str(address), str(error)) from error
    except TimeoutError as error:
        raise DeadlineExceededError(
            f"{address} did not answer within {request.timeout:g} s"
        ) from error
    except http.client.RemoteDisconnected as error:
        raise _broke(address, error) from error
    except http.client.BadStatusLine as error:
        raise failures.no_edge(str(address)) from error
    except (OSError, http.client.HTTPException) as error:
        raise _broke(address, error) from error
    finally:
        connection.close()


def _broke(address: Address, error: Exception) -> UnavailableError:
    return UnavailableError(f"{address}: the connection broke: {error!r}")
