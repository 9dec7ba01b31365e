"""Which issuers and which of their keys are believed."""

import base64
import json
from typing import Any

import pytest

from services.metering.domain.issuer import check_url, usable_keys
from services.rpc.errors import InvalidArgumentError


def number(size: int) -> str:
    return base64.urlsafe_b64encode(b"\x80" + bytes(size - 1)).decode().rstrip("=")


RSA = {"kty": "RSA", "kid": "r", "alg": "RS256", "use": "sig", "n": number(256), "e": "AQAB"}
EC = {"kty": "EC", "kid": "e", "crv": "P-256", "x": number(32), "y": number(32)}
ED = {"kty": "OKP", "kid": "d", "crv": "Ed25519", "x": number(32)}


def kids(*keys: Any) -> list[str]:
    return [key["kid"] for key in json.loads(usable_keys(json.dumps({"keys": keys})))["keys"]]


@pytest.mark.parametrize(
    "key",
    [
        pytest.param({"kty": "oct", "kid": "x", "k": number(32)}, id="a shared secret"),
        pytest.param({**RSA, "alg": "HS256"}, id="a symmetric algorithm"),
        pytest.param({**RSA, "alg": "none"}, id="no algorithm"),
        pytest.param({**RSA, "alg": "ES256"}, id="an algorithm of another type"),
        pytest.param({**RSA, "use": "enc"}, id="for encryption"),
        pytest.param({**RSA, "n": number(255)}, id="a short RSA key"),
        pytest.param({**RSA, "n": "AAAA" + number(253)}, id="a short RSA key with zeros before"),
        pytest.param({**RSA, "n": 5}, id="a number that is no text"),
        pytest.param({**EC, "crv": "P-384"}, id="another curve"),
        pytest.param({**EC, "x": number(31)}, id="a short coordinate"),
        pytest.param({**EC, "x": "!" * 43}, id="no base64"),
        pytest.param({"kty": "EC", "crv": "P-256", "x": number(32)}, id="half a point"),
        pytest.param({**ED, "crv": "X25519"}, id="a curve that signs nothing"),
        pytest.param("key", id="no object"),
        pytest.param({"kty": ["RSA"]}, id="an odd type"),
    ],
)
def test_keys_that_can_not_verify_are_left_out(key: Any) -> None:
    """The others of the set stay; alone it makes the set unusable."""
    assert kids(RSA, key, ED) == ["r", "d"]
    with pytest.raises(InvalidArgumentError, match="can verify"):
        kids(key)


def test_only_public_members_are_passed_on() -> None:
    """Also when an issuer publishes more than it should."""
    private = {**ED, "d": number(32), "x5c": ["…"], "key_ops": ["verify"], "alg": "EdDSA"}
    (passed,) = json.loads(usable_keys(json.dumps({"keys": [private]})))["keys"]
    assert passed == {**ED, "alg": "EdDSA", "use": "sig"}
    assert kids(RSA, EC, ED) == ["r", "e", "d"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("[]", id="a list"),
        pytest.param('{"keys": {}}', id="keys that are no list"),
        pytest.param('{"keys": []}', id="no keys"),
        pytest.param(json.dumps({"keys": [RSA] * 33}), id="too many keys"),
    ],
)
def test_sets_that_can_not_be_used(text: str) -> None:
    """They are refused as a whole."""
    with pytest.raises(InvalidArgumentError):
        usable_keys(text)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://issuer.example/realm", True),
        ("http://127.0.0.1:9000", True),
        ("http://[::1]:9000", True),
        ("http://localhost/x", True),
        ("http://issuer.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost.evil.example", False),
        ("https://", False),
        ("file:///etc/passwd", False),
        ("", False),
        ("None", False),
    ],
)
def test_urls(url: str, allowed: bool) -> None:
    """Nobody on the way may answer: https, or this machine itself."""
    if allowed:
        assert check_url("u", url) == url
    else:
        with pytest.raises(InvalidArgumentError):
            check_url("u", url)
