"""Keys of OpenID Connect issuers over HTTP(S): the discovery document, then the key set it names."""

import asyncio
import json
import ssl
from pathlib import Path

import httpx

from services.metering.domain.issuer import TrustedIssuer, check_url
from services.metering.ports.jwks_source import FetchedKeys
from services.rpc.errors import InvalidArgumentError, UnavailableError
from services.rpc.names import shown

_LARGEST_ANSWER = 256 * 1024  # bytes
_SECONDS = 10.0  # for each answer, all of it
_DISCOVERY = "/.well-known/openid-configuration"


class OidcSource:
    """A JwksSource that verifies certificates and follows no redirects."""

    def __init__(self, ca_file: Path | None) -> None:
        """Read what is trusted; nothing is connected yet.

        Args:
            ca_file: PEM certificates that are trusted beside the usual ones.
        """
        trust = httpx.create_ssl_context()
        if ca_file is not None:
            try:
                trust.load_verify_locations(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                raise InvalidArgumentError.of_field(
                    "INFERPLANE_OIDC_CA_FILE", f"{ca_file} holds no certificates: {error}"
                ) from error
        self._client = httpx.AsyncClient(verify=trust, timeout=_SECONDS)

    async def close(self) -> None:
        """End the connections."""
        await self._client.aclose()

    async def fetch(
        self, issuer: TrustedIssuer, known: FetchedKeys | None = None
    ) -> FetchedKeys | None:
        uri = known.uri if known is not None else issuer.jwks_uri or await self._discover(issuer)
        headers = {"if-none-match": known.etag} if known is not None and known.etag else {}
        status, etag, body = await self._get(check_url("jwks_uri", uri), headers)
        if status == httpx.codes.NOT_MODIFIED:
            return None
        return FetchedKeys(body.decode(errors="replace"), uri, etag)

    async def _discover(self, issuer: TrustedIssuer) -> str:
        """Where the issuer's keys are. OpenID Connect Discovery 1.0, section 4."""
        where = issuer.issuer.rstrip("/") + _DISCOVERY
        _, _, body = await self._get(check_url("issuer", where), {})
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError.of_field("discovery", f"{where} is not JSON") from error
        said = document if isinstance(document, dict) else {}
        # Section 4.3: otherwise one issuer could speak for another.
        if said.get("issuer") != issuer.issuer:
            raise InvalidArgumentError.of_field(
                "issuer", f"{where} speaks for {shown(str(said.get('issuer')))}"
            )
        return str(said.get("jwks_uri"))

    async def _get(self, url: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._client.stream("GET", url, headers=headers) as response,
            ):
                if response.status_code == httpx.codes.NOT_MODIFIED and headers:
                    return response.status_code, "", b""
                if response.status_code != httpx.codes.OK:
                    raise _unavailable(url, f"HTTP status {response.status_code}")
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _LARGEST_ANSWER:
                        raise InvalidArgumentError.of_field(
                            "answer", f"{url} is larger than {_LARGEST_ANSWER} bytes"
                        )
                return response.status_code, response.headers.get("etag", ""), bytes(body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise _unavailable(url, str(error) or type(error).__name__) from error


def _unavailable(url: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"{url}: {why}", reason="ISSUER_UNAVAILABLE", metadata={"url": url}, retry_after=60.0
    )
