"""Keys of issuers over HTTP, from a server on this machine."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.metering.adapters.oidc_source import OidcSource
from services.metering.domain.issuer import TrustedIssuer
from services.metering.ports.jwks_source import FetchedKeys
from services.rpc.errors import InferplaneError, InvalidArgumentError, UnavailableError

JWKS = '{"keys": []}'
Answer = tuple[int, dict[str, str], bytes]


class HttpServer:
    """Answers each path as its table says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = (await reader.readline()).decode().split()
        headers = {}
        while line := (await reader.readline()).decode().strip():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        self.asked.append((first[1], headers))
        status, more, body = self.answers.get(first[1], (404, {}, b""))
        if more.get("etag") is not None and headers.get("if-none-match") == more["etag"]:
            status, body = 304, b""
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in more.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def discovery(self, **changed: object) -> Answer:
        document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **changed}
        return 200, {}, json.dumps(document).encode()


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    server = HttpServer()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    server.answers["/.well-known/openid-configuration"] = server.discovery()
    server.answers["/keys"] = (200, {"etag": '"1"'}, JWKS.encode())
    async with listening:
        yield server


@pytest.fixture
async def source() -> AsyncIterator[OidcSource]:
    source = OidcSource(None)
    yield source
    await source.close()


def issuer(server: HttpServer, **fields: str) -> TrustedIssuer:
    return TrustedIssuer(**{"issuer": server.url, "audiences": ("a",), **fields})  # type: ignore[arg-type] # audiences is the only tuple


async def test_the_discovery_document_says_where_keys_are(
    server: HttpServer, source: OidcSource
) -> None:
    """Then they are fetched from there."""
    found = await source.fetch(issuer(server))
    assert found == FetchedKeys(JWKS, f"{server.url}/keys", '"1"')
    assert [path for path, _ in server.asked] == ["/.well-known/openid-configuration", "/keys"]


async def test_settings_may_say_where_keys_are(server: HttpServer, source: OidcSource) -> None:
    """Nothing is discovered then."""
    await source.fetch(issuer(server, jwks_uri=f"{server.url}/keys"))
    assert [path for path, _ in server.asked] == ["/keys"]


async def test_known_keys_are_sent_only_if_they_changed(
    server: HttpServer, source: OidcSource
) -> None:
    """One question with the etag, no discovery."""
    known = await source.fetch(issuer(server))
    server.asked.clear()
    assert await source.fetch(issuer(server), known) is None
    assert [path for path, _ in server.asked] == ["/keys"]
    server.answers["/keys"] = (200, {"etag": '"2"'}, b"{}")
    again = await source.fetch(issuer(server), known)
    assert again == FetchedKeys("{}", f"{server.url}/keys", '"2"')


def _set(path: str, answer: Answer) -> Callable[[HttpServer], None]:
    return lambda server: server.answers.update({path: answer})


_DISCOVERY = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("prepare", "kind"),
    [
        pytest.param(_set("/keys", (500, {}, b"")), UnavailableError, id="an error"),
        pytest.param(
            _set("/keys", (302, {"location": "http://127.0.0.1/other"}, b"")),
            UnavailableError,
            id="a redirect",
        ),
        pytest.param(_set("/keys", (304, {}, b"")), UnavailableError, id="unasked 304"),
        pytest.param(
            _set("/keys", (200, {}, bytes(256 * 1024 + 1))), InvalidArgumentError, id="too large"
        ),
        pytest.param(_set(_DISCOVERY, (200, {}, b"<")), InvalidArgumentError, id="no JSON"),
        pytest.param(
            _set(_DISCOVERY, (200, {}, b"[" * 100_000)), InvalidArgumentError, id="deep JSON"
        ),
        pytest.param(_set(_DISCOVERY, (200, {}, b"[]")), InvalidArgumentError, id="a list"),
        pytest.param(
            lambda server: server.answers.update(
                {_DISCOVERY: server.discovery(issuer="https://evil.example")}
            ),
            InvalidArgumentError,
            id="another's document",
        ),
        pytest.param(
            lambda server: server.answers.update(
                {_DISCOVERY: server.discovery(jwks_uri="http://evil.example/keys")}
            ),
            InvalidArgumentError,
            id="keys that anybody on the way may change",
        ),
        pytest.param(
            lambda server: server.answers.update({_DISCOVERY: server.discovery(jwks_uri=None)}),
            InvalidArgumentError,
            id="no keys named",
        ),
    ],
)
async def test_answers_that_are_not_taken(
    server: HttpServer,
    source: OidcSource,
    prepare: Callable[[HttpServer], None],
    kind: type[InferplaneError],
) -> None:
    """Each is an error of its kind, whatever the issuer does."""
    prepare(server)
    with pytest.raises(kind):
        await source.fetch(issuer(server))


async def test_an_issuer_that_is_not_there(source: OidcSource) -> None:
    """The error names the address and when to try again."""
    nobody = TrustedIssuer(issuer="http://127.0.0.1:1", audiences=("a",))
    with pytest.raises(UnavailableError) as caught:
        await source.fetch(nobody)
    assert caught.value.reason == "ISSUER_UNAVAILABLE"
    assert caught.value.retry_after


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    """At the start, with the name of the variable."""
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(InvalidArgumentError, match="INFERPLANE_OIDC_CA_FILE"):
        OidcSource(tmp_path / "ca.pem")
    with pytest.raises(InvalidArgumentError, match="INFERPLANE_OIDC_CA_FILE"):
        OidcSource(tmp_path / "missing.pem")
