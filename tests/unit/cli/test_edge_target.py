"""Where an edge is, as people type it, and how it is reached by TLS."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from services.cli.adapters import access, edge, edge_target, http
from services.cli.adapters.accounts import list_projects
from services.cli.domain.exit_code import UsageError
from services.cli.domain.failures import NOT_TRUSTED
from services.rpc.errors import InvalidArgumentError, UnavailableError
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY
from tests.mesh_certificates import MeshCertificates

_ASK = http.Request(method="GET", path="/", timeout=60)


@pytest.mark.parametrize(
    ("text", "shown", "is_secure"),
    [
        pytest.param("127.0.0.1:8080", "127.0.0.1:8080", False, id="host and port"),
        pytest.param("http://127.0.0.1:8080/", "127.0.0.1:8080", False, id="http"),
        pytest.param("unix:/run/e.sock", "unix:/run/e.sock", False, id="a socket"),
        pytest.param("https://api.example.com", "https://api.example.com:443", True, id="https"),
        pytest.param("https://[::1]:8443", "https://[::1]:8443", True, id="an IPv6 address"),
        pytest.param("https://[::1]", "https://[::1]:443", True, id="one without a port"),
    ],
)
def test_addresses(text: str, shown: str, *, is_secure: bool) -> None:
    """They are read, and shown as they can be typed again."""
    target = edge_target.parse(text)
    assert (str(target), target.is_secure) == (shown, is_secure)


def test_no_address() -> None:
    """The option is named."""
    with pytest.raises(InvalidArgumentError) as raised:
        edge_target.parse("https://")
    assert raised.value.violations[0].field == "--address"


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, MeshCertificates]]:
    """Its address, and who gave its certificate."""
    certificates = MeshCertificates.begin(tmp_path)
    own = certificates.issue("edge", PeerKind.EDGE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own / CERTIFICATE, own / KEY)
    server = HTTPServer(("127.0.0.1", 0), _Hello)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", certificates
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_edge_of_ones_own_authority(
    served: tuple[str, MeshCertificates], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is believed with INFERPLANE_CA, and without is told to be unknown; what is no file is said."""
    address, certificates = served
    target = edge_target.parse(address)
    with pytest.raises(UnavailableError) as raised:
        http.send(target.address, _ASK, edge_target.context(target))
    assert raised.value.reason == NOT_TRUSTED
    monkeypatch.setenv("INFERPLANE_CA", str(certificates.folder / "edge" / AUTHORITIES))
    assert http.send(target.address, _ASK, edge_target.context(target)).body == b"ok"
    monkeypatch.setenv("INFERPLANE_CA", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError):
        edge_target.context(target)
    with pytest.raises(UsageError):
        edge_target.open_channel(target)


def test_tls_that_is_spoken_to_in_plain_text(served: tuple[str, MeshCertificates]) -> None:
    """It ends the connection; how it is reached is said."""
    address = served[0].removeprefix("https://")
    with pytest.raises(UnavailableError, match=f"--address https://{address}"):
        edge.call(address, list_projects)


@pytest.mark.parametrize(
    ("address", "warns"),
    [
        ("http://edge.example:8080", True),
        ("https://edge.example", False),
        ("127.0.0.1:8080", False),
        ("localhost:8080", False),
        ("unix:/run/e.sock", False),
    ],
)
def test_a_key_in_plain_text_is_warned_of(
    address: str, *, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beyond this machine, unless it goes by TLS."""
    with access.given("token", "a test"):
        assert access.headers(address) == {"authorization": "Bearer token"}
    assert ("plain text" in capsys.readouterr().err) is warns
