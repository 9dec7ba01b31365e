"""An OpenID Connect issuer whose tokens are believed, and which of its keys may verify them."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

from services.metering.domain.web_address import is_secure
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import shown

MAX_KEYS = 32
_LEAST_RSA_BYTES = 256  # 2048 bits
_CURVE_BYTES = 32

# The public members of each type of key.
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("n", "e"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}
# Asymmetric ones only: with a shared secret whoever can verify could sign too.
_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "PS256"),
    "EC": ("ES256",),
    "OKP": ("EdDSA",),
}
_PASSED = ("kty", "kid", "alg", "n", "e", "crv", "x", "y")  # all others are left out
_CURVES: Mapping[str, str] = {"EC": "P-256", "OKP": "Ed25519"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedIssuer:
    """What settings say of an issuer."""

    issuer: str  # `iss` of its tokens, and where its discovery document is
    audiences: tuple[str, ...]  # one of them must be in the tokens' `aud`
    project_claim: str = "project"  # names of claims; nested ones with dots
    role_claim: str = "role"
    endpoints_claim: str = "endpoints"
    jwks_uri: str = ""  # empty: the discovery document says


def check_url(field: str, url: str) -> str:
    """A URL that nobody between can answer for: https, or http on this machine itself."""
    if not is_secure(url):
        raise InvalidArgumentError.of_field(
            field, f"{shown(url)}; allowed: https://…, or http://… on a loopback address"
        )
    return url


def usable_keys(text: str) -> str:
    """The keys of a JSON Web Key Set that may verify, as one; InvalidArgumentError if there are none or too many.

    Keys for encryption, of weak or other kinds, and members that are not public are left out.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError.of_field("jwks", "not JSON") from error
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise InvalidArgumentError.of_field("jwks", "no list `keys` in it")
    if len(keys) > MAX_KEYS:
        raise InvalidArgumentError.of_field("jwks", f"{len(keys)} keys; allowed: {MAX_KEYS}")
    usable = [public for key in keys if (public := _public(key)) is not None]
    if not usable:
        raise InvalidArgumentError.of_field(
            "jwks",
            f"none of its {len(keys)} keys can verify; allowed: RSA of 2048 bits or more, P-256, Ed25519",
        )
    return json.dumps({"keys": usable}, sort_keys=True)


def _public(key: object) -> Mapping[str, str] | None:
    """The public half of a key that may verify."""
    if not isinstance(key, dict):
        return None
    kind = key.get("kty")
    if not isinstance(kind, str) or kind not in _MEMBERS or key.get("use", "sig") != "sig":
        return None
    algorithm = key.get("alg")
    if algorithm is not None and algorithm not in _ALGORITHMS[kind]:
        return None
    said = {name: value for name, value in key.items() if isinstance(value, str)}
    if not all(name in said for name in _MEMBERS[kind]) or not _strong(kind, said):
        return None
    return {"use": "sig", **{name: said[name] for name in _PASSED if name in said}}


def _strong(kind: str, members: Mapping[str, str]) -> bool:
    if kind == "RSA":
        return len(_decoded(members["n"]).lstrip(b"\0")) >= _LEAST_RSA_BYTES
    coordinates = [members[name] for name in _MEMBERS[kind] if name != "crv"]
    return members["crv"] == _CURVES[kind] and all(
        len(_decoded(value)) == _CURVE_BYTES for value in coordinates
    )


def _decoded(value: str) -> bytes:
    """The bytes of a base64url value; none if it is no such value."""
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return b""
