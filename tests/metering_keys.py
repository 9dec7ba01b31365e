"""Tokens of API keys for tests: good ones, and every kind that must not let anybody in."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.metering.adapters.signing_files import public_jwk


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class KeyMint:
    """Signs what it is told to, right or wrong, with a key of its own or with that of a metering folder."""

    def __init__(self, key: Ed25519PrivateKey | None = None) -> None:
        self.key = key or Ed25519PrivateKey.generate()
        self.kid, self.jwk = public_jwk(self.key.public_key())
        self.jwks = json.dumps({"keys": [json.loads(self.jwk)]})

    @classmethod
    def of_folder(cls, state_dir: Path) -> "KeyMint":
        """The mint of a metering process that keeps its files in this state folder."""
        (path,) = (state_dir / "metering" / "signing").glob("*.pem")
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)
        return cls(key)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Claims of a caller's key for everything, with some changed; None leaves one out."""
        now = int(time.time())
        project = changed.get("project", "default")
        jti = changed.get("jti", "0123456789abcdef0123456789abcdef")
        claims = {
            "iss": "inferplane",
            "aud": "inferplane",
            "sub": f"projects/{project}/keys/{jti}",
            "project": project,
            "role": "caller",
            "endpoints": ["*"],
            "jti": jti,
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def header(self, **changed: Any) -> dict[str, Any]:
        return {"alg": "EdDSA", "kid": self.kid, "typ": "JWT", **changed}

    def signed(self, header: str, payload: str) -> str:
        """A token of these very texts, signed."""
        text = f"{encoded(header.encode())}.{encoded(payload.encode())}"
        return f"{text}.{encoded(self.key.sign(text.encode()))}"

    def token(self, header: Mapping[str, Any] | None = None, **changed: Any) -> str:
        """A good token, but for what is changed in its header and claims."""
        return self.signed(
            json.dumps(self.header(**(header or {}))), json.dumps(self.claims(**changed))
        )


def _tampered(mint: KeyMint) -> str:
    header, _, signature = mint.token().split(".")
    return f"{header}.{encoded(json.dumps(mint.claims(role='admin')).encode())}.{signature}"


def _none(mint: KeyMint, alg: str = "none") -> str:
    text = f"{encoded(json.dumps({'alg': alg, 'typ': 'JWT', 'kid': mint.kid}).encode())}"
    return f"{text}.{encoded(json.dumps(mint.claims(role='admin')).encode())}."


def _shared_secret(mint: KeyMint) -> str:
    """Signed by HS256 with the public key as the secret: whoever takes the algorithm from the token falls for it."""
    public = mint.key.public_key().public_bytes_raw()
    header = json.dumps(mint.header(alg="HS256"))
    text = f"{encoded(header.encode())}.{encoded(json.dumps(mint.claims()).encode())}"
    return f"{text}.{encoded(hmac.digest(public, text.encode(), hashlib.sha256))}"


def _twice(mint: KeyMint, claim: str, first: Any) -> str:
    """Signed, and with a claim said twice: readers that take the first or the last would differ."""
    payload = json.dumps(mint.claims())
    return mint.signed(
        json.dumps(mint.header()), f"{{{json.dumps(claim)}: {json.dumps(first)}, {payload[1:]}"
    )


def _two_algorithms(mint: KeyMint) -> str:
    header = json.dumps(mint.header())
    return mint.signed(f'{{"alg": "none", {header[1:]}', json.dumps(mint.claims()))


def _of_other_key(mint: KeyMint) -> str:
    """Signed by a key that nobody knows, under the kid of one that is known."""
    return KeyMint().token(header={"kid": mint.kid})


def _without_kid(mint: KeyMint) -> str:
    """Signed by a key that nobody knows, naming none: a verifier may try all it has."""
    other = KeyMint()
    header = other.header()
    del header["kid"]
    return other.signed(json.dumps(header), json.dumps(other.claims()))


def _brings_key(mint: KeyMint) -> str:
    """Brings the key that verifies it along."""
    other = KeyMint()
    return other.token(header={"jwk": json.loads(other.jwk)})


# Ten minutes: beyond the leeway that verifiers leave to clocks.
BAD_TOKENS: Mapping[str, Callable[[KeyMint], str]] = {
    "no token at all": lambda mint: "",
    "no JWT": lambda mint: "sk-0123456789",
    "expired": lambda mint: mint.token(exp=int(time.time()) - 600),
    "without an end": lambda mint: mint.token(exp=None),
    "not yet good": lambda mint: mint.token(nbf=int(time.time()) + 600),
    "tampered": _tampered,
    "signature cut off": lambda mint: mint.token().rpartition(".")[0] + ".",
    "signature missing": lambda mint: mint.token().rpartition(".")[0],
    "signature of zeros": lambda mint: mint.token().rpartition(".")[0] + "." + encoded(bytes(64)),
    "none algorithm": _none,
    "None algorithm": lambda mint: _none(mint, "None"),
    "HS256 with the public key as secret": _shared_secret,
    "EdDSA key under RS256": lambda mint: mint.token(header={"alg": "RS256"}),
    "unknown kid": lambda mint: KeyMint().token(),
    "kid of another key": _of_other_key,
    "unknown key without kid": _without_kid,
    "brings its own key": _brings_key,
    "other issuer": lambda mint: mint.token(iss="https://evil.example"),
    "other audience": lambda mint: mint.token(aud="somebody"),
    "without audience": lambda mint: mint.token(aud=None),
    "role said twice": lambda mint: _twice(mint, "role", "admin"),
    "project said twice": lambda mint: _twice(mint, "project", "victim"),
    "expiry said twice": lambda mint: _twice(mint, "exp", 1),
    "algorithm said twice": _two_algorithms,
    "1 MB": lambda mint: mint.token(endpoints=["e" * 1_000_000]),
    "payload that is no object": lambda mint: mint.signed(json.dumps(mint.header()), "[]"),
    "payload that is no JSON": lambda mint: mint.signed(json.dumps(mint.header()), "{"),
}
