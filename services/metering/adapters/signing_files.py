"""Private Ed25519 keys in a folder, one `{kid}.pem` each, mode 0600."""

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from services.metering.domain.signing_key import SigningKey
from services.metering.domain.token import AUDIENCE, ISSUER
from services.rpc.errors import InternalError
from services.rpc.secret_file import read_secret, sync_folder, write_secret

ALGORITHM = "EdDSA"


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def public_jwk(key: Ed25519PublicKey) -> tuple[str, str]:
    """The key's kid, which is its thumbprint (RFC 7638), and the key as a JSON Web Key (RFC 8037)."""
    members = {"crv": "Ed25519", "kty": "OKP", "x": _text(key.public_bytes_raw())}
    canonical = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
    kid = _text(hashlib.sha256(canonical).digest())
    return kid, json.dumps({**members, "kid": kid, "alg": ALGORITHM, "use": "sig"})


class SigningFiles:
    """A Signer whose keys outlive the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[str, Ed25519PrivateKey] = {}

    def make(self) -> tuple[str, str]:
        key = Ed25519PrivateKey.generate()
        kid, jwk = public_jwk(key.public_key())
        self._folder.mkdir(mode=0o700, exist_ok=True)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_secret(self._path(kid), pem)
        sync_folder(self._folder.parent)
        self._keys[kid] = key
        return kid, jwk

    def has(self, kid: str) -> bool:
        if kid not in self._keys:
            pem = read_secret(self._path(kid))
            if pem is None:
                return False
            self._keys[kid] = self._parse(kid, pem)
        return True

    def sign(self, kid: str, claims: Mapping[str, object]) -> str:
        if not self.has(kid):
            raise InternalError(
                f"the private half of the signing key {kid} is not in {self._folder}; metering processes that"
                " share a database must share INFERPLANE_STATE_DIR"
            )
        # It takes its time to import, and most starts sign nothing.
        import jwt

        return jwt.encode(
            dict(claims), self._keys[kid], algorithm=ALGORITHM, headers={"kid": kid, "typ": "JWT"}
        )

    def read(self, key: SigningKey, token: str) -> Mapping[str, object] | None:
        import jwt  # as in `sign`

        try:
            claims: dict[str, object] = jwt.decode(
                token,
                jwt.PyJWK.from_json(key.jwk),
                [ALGORITHM],
                audience=AUDIENCE,
                issuer=ISSUER,
                # Times are for the caller, whose clock this is not.
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
        except jwt.InvalidTokenError:
            return None
        return claims

    def keep_only(self, kids: Collection[str]) -> None:
        for path in self._folder.glob("*.pem"):
            if path.stem not in kids:
                path.unlink()
                self._keys.pop(path.stem, None)
        if self._folder.is_dir():
            sync_folder(self._folder)

    def _path(self, kid: str) -> Path:
        return self._folder / f"{kid}.pem"

    def _parse(self, kid: str, pem: bytes) -> Ed25519PrivateKey:
        path = self._path(kid)
        try:
            key = serialization.load_pem_private_key(pem, None)
        except ValueError as error:
            raise InternalError(f"{path} holds no private key") from error
        if not isinstance(key, Ed25519PrivateKey) or public_jwk(key.public_key())[0] != kid:
            raise InternalError(f"{path} holds another key than its name says")
        return key
