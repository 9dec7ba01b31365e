"""Signing keys in files, and the tokens that tests forge."""

import json
import stat
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from services.metering.adapters.signing_files import SigningFiles, public_jwk
from services.rpc.errors import FailedPreconditionError, InternalError
from tests.metering_keys import BAD_TOKENS, KeyMint
from tests.unit.metering.identities import signing

# Wrong in ways that are the edge's to refuse: times, and claims said twice in what we ourselves signed.
_FOR_THE_EDGE = {"expired", "without an end", "not yet good", "1 MB"}


def made(folder: Path) -> tuple[SigningFiles, str, str]:
    signer = SigningFiles(folder / "signing")
    kid, jwk = signer.make()
    return signer, kid, jwk


def test_what_one_signs_the_published_half_verifies(tmp_path: Path) -> None:
    """Also after a restart, by any library that knows EdDSA."""
    _, kid, jwk = made(tmp_path)
    token = SigningFiles(tmp_path / "signing").sign(kid, {"aud": "inferplane", "a": 1})
    verified = jwt.decode(token, jwt.PyJWK.from_json(jwk), ["EdDSA"], audience="inferplane")
    assert verified["a"] == 1


def test_the_private_half_is_for_this_user_alone_and_nowhere_else(tmp_path: Path) -> None:
    """The folder too; the published half has no private member."""
    _, kid, jwk = made(tmp_path)
    path = tmp_path / "signing" / f"{kid}.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert set(json.loads(jwk)) == {"kty", "crv", "x", "kid", "alg", "use"}


def test_the_kid_is_the_keys_thumbprint() -> None:
    """RFC 8037, appendix A.3."""
    raw = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    kid, jwk = public_jwk(Ed25519PublicKey.from_public_bytes(raw))
    assert kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert json.loads(jwk)["x"] == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"


def test_files_that_are_not_what_they_say(tmp_path: Path) -> None:
    """A broken one, one under another's name, one that others may read: none signs."""
    signer, kid, _ = made(tmp_path)
    other, _ = signer.make()
    folder = tmp_path / "signing"
    (folder / f"{kid}.pem").write_bytes((folder / f"{other}.pem").read_bytes())
    with pytest.raises(InternalError, match="another key"):
        SigningFiles(folder).has(kid)
    (folder / f"{kid}.pem").write_bytes(b"rubbish")
    with pytest.raises(InternalError, match="no private key"):
        SigningFiles(folder).has(kid)
    (folder / f"{other}.pem").chmod(0o644)
    with pytest.raises(FailedPreconditionError):
        SigningFiles(folder).has(other)
    assert not signer.has("missing")
    with pytest.raises(InternalError, match="missing is not in"):
        signer.sign("missing", {})


def test_destroyed_keys_sign_no_more(tmp_path: Path) -> None:
    """Not even from memory."""
    signer, kid, _ = made(tmp_path)
    kept, _ = signer.make()
    signer.keep_only([kept])
    assert signer.has(kept)
    assert not signer.has(kid)


@pytest.mark.parametrize("name", sorted(set(BAD_TOKENS) - _FOR_THE_EDGE))
def test_tokens_that_are_not_ours(tmp_path: Path, name: str) -> None:
    """None is taken for one that we signed, save those in which claims are said twice: those we did sign."""
    mint = KeyMint()
    public = signing(mint.kid, jwk=mint.jwk)
    signer = SigningFiles(tmp_path)
    good = signer.read(public, mint.token())
    assert good is not None
    assert good["jti"] == mint.claims()["jti"]
    said = signer.read(public, BAD_TOKENS[name](mint))
    assert said is None or "twice" in name
