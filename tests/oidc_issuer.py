"""A real OpenID Connect issuer as a process on loopback, and users who sign in."""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

_REDIRECT = "http://127.0.0.1/back"
_SECONDS = 60


@dataclass(slots=True)
class OidcIssuer:
    """`url` is what its tokens say; it signs with a new key whenever it is started."""

    port: int
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    async def start(cls, port: int) -> "OidcIssuer":
        """Once it answers."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "oidc_provider_mock"),
            *("--host", "127.0.0.1", "--port", str(port)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        issuer = cls(port, process)
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient() as client:
            while True:
                assert process.returncode is None, "the issuer ended"
                try:
                    (await client.get(f"{issuer.url}/jwks")).raise_for_status()
                    return issuer
                except httpx.TransportError:
                    await asyncio.sleep(0.05)  # another process, no event

    async def stop(self) -> None:
        """End it."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def sign_in(self, user: str, audience: str, **claims: Any) -> str:
        """The ID token that a client called `audience` gets for a user (OpenID Connect Core 1.0, section 3.1)."""
        query = {
            "client_id": audience,
            "redirect_uri": _REDIRECT,
            "response_type": "code",
            "scope": "openid",
        }
        async with httpx.AsyncClient(base_url=self.url, timeout=_SECONDS) as client:
            (await client.put(f"/users/{user}", json=claims)).raise_for_status()
            agreed = await client.post("/oauth2/authorize", params=query, data={"sub": user})
            (code,) = parse_qs(urlsplit(agreed.headers["location"]).query)["code"]
            got = await client.post(
                "/oauth2/token",
                data={"grant_type": "authorization_code", "code": code, "redirect_uri": _REDIRECT},
                auth=(audience, "secret"),
            )
            return str(got.raise_for_status().json()["id_token"])
