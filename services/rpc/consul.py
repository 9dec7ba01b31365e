"""A client of Consul's HTTP API: several agents, an ACL token from a file, TLS by a CA's file."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from services.rpc.consul_settings import DiscoverySettings

SERVICE = "inferplane-worker"
_LONGEST_ERROR = 300  # characters of an agent's words

Parameters = Mapping[str, str]


class ConsulError(Exception):
    """A question to Consul got no good answer."""


class ConsulUnreachableError(ConsulError):
    """Nobody answered: no connection, or not in time."""


class ConsulRefusedError(ConsulError):
    """An agent answered, and said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text

    @property
    def is_unknown_check(self) -> bool:
        """Whether a check was renewed that the agent doesn't have (any more)."""
        words = ("Unknown check", "does not have associated TTL")
        return self.status == httpx.codes.NOT_FOUND or any(word in self.text for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsulAccess:
    """Where the agents are and how they are reached."""

    urls: tuple[str, ...]  # without a path; at least one
    token_file: Path | None = None
    ca_file: Path | None = None

    @classmethod
    def of(cls, settings: DiscoverySettings) -> "ConsulAccess":
        """As the settings say."""
        return cls(
            urls=settings.consul_urls(),
            token_file=settings.consul_token_file,
            ca_file=settings.consul_ca_file,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answered."""

    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, parsed. Raises ConsulError."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise ConsulError(f"an answer is no JSON: {error}") from error

    @property
    def index(self) -> int | None:
        """`X-Consul-Index`; None: there is none, or it is no number."""
        text = self.headers.get("x-consul-index", "")
        return int(text) if text.isdecimal() else None

    @property
    def is_filtered(self) -> bool:
        """Whether ACLs left something out; agents before 1.11 don't say so."""
        return self.headers.get("x-consul-results-filtered-by-acls", "") == "true"

    @property
    def age(self) -> float:
        """Seconds since the server that answered last heard of its leader."""
        text = self.headers.get("x-consul-lastcontact", "")
        return int(text) / 1000 if text.isdecimal() else 0.0


@dataclass(slots=True)
class Consul:
    """Asks one agent while it answers; whoever finds that it doesn't calls `move_on`."""

    access: ConsulAccess
    _turn: int = 0
    _client: httpx.AsyncClient | None = field(default=None, repr=False)
    _calls: int = 0  # that run
    _is_doubtful: bool = False  # the client: a call failed, perhaps since the CA is another one now

    @property
    def url(self) -> str:
        """Of the agent that is asked."""
        return self.access.urls[self._turn % len(self.access.urls)]

    def move_on(self) -> None:
        """Ask the next agent from now on."""
        self._turn += 1

    async def get(
        self, path: str, parameters: Parameters | None = None, *, seconds: float
    ) -> Answer:
        """Ask. Raises ConsulError."""
        return await self.call("GET", path, parameters or {}, seconds=seconds)

    async def put(
        self,
        path: str,
        body: object = None,
        parameters: Parameters | None = None,
        *,
        seconds: float,
    ) -> None:
        """Tell. Raises ConsulError."""
        await self.call("PUT", path, parameters or {}, body, seconds=seconds)

    async def call(
        self,
        method: str,
        path: str,
        parameters: Parameters,
        body: object = None,
        *,
        seconds: float,
    ) -> Answer:
        """One request to the present agent, bounded in time as a whole. Raises ConsulError."""
        url, headers = self.url, self._headers()
        self._calls += 1
        try:
            async with asyncio.timeout(seconds):
                response = await self._open().request(
                    method,
                    f"{url}/v1/{path}",
                    params=dict(parameters),
                    content=None if body is None else orjson.dumps(body),
                    headers=headers,
                    timeout=None,
                )
        except (httpx.HTTPError, OSError) as error:
            self._is_doubtful = True
            reason = str(error) or type(error).__name__
            raise ConsulUnreachableError(f"{url}: {reason}") from error
        finally:
            self._calls -= 1
            if self._is_doubtful and not self._calls:
                await self.close()
        if response.status_code != httpx.codes.OK:
            text = response.text.strip()[:_LONGEST_ERROR]
            raise ConsulRefusedError(response.status_code, text)
        return Answer(response.headers, response.content)

    async def close(self) -> None:
        """End connections; the next question opens others."""
        client, self._client, self._is_doubtful = self._client, None, False
        if client is not None:
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(verify=self._trust(), trust_env=False)
        return self._client

    def _trust(self) -> ssl.SSLContext | bool:
        if not any(url.startswith("https:") for url in self.access.urls):
            return False  # there is nothing to be verified
        ca_file = self.access.ca_file
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}  # packed workers don't become smaller
        file = self.access.token_file
        if file is None:
            return headers
        try:
            return {**headers, "X-Consul-Token": file.read_text("ascii").strip()}
        except (OSError, UnicodeDecodeError) as error:
            raise ConsulError(f"{file} can't be read as a token: {error}") from error
