"""Tokens as metering signs them, and an edge that asks for them."""

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.router.domain.policy import PolicyChange, PolicyUpdate, SigningKey, SigningKeyChange
from services.router.domain.topology import Endpoint, Target
from services.rpc.names import EndpointName
from tests.integration.router.edge import DIGITS, V1, V2, EdgeUnderTest

OTHER = EndpointName("other")


def base64url(data: bytes) -> str:
    """As in tokens."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(slots=True)
class Signer:
    """A signing key; `token` makes what metering would."""

    kid: str = "k1"
    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def public(self) -> bytes:
        """The public half, raw."""
        return self.private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )

    def change(self) -> SigningKeyChange:
        """The fact that this key signs."""
        jwk = {"kty": "OKP", "crv": "Ed25519", "x": base64url(self.public)}
        jwk |= {"kid": self.kid, "alg": "EdDSA", "use": "sig"}
        return SigningKeyChange(self.kid, SigningKey(self.kid, json.dumps(jwk)))

    def claims(self, **others: Any) -> dict[str, Any]:
        """Of an admin of project `acme`, for all endpoints; None leaves a claim out."""
        now = int(time.time())
        project, jti = others.get("project", "acme"), others.get("jti", "key1")
        claims = {
            "iss": "inferplane",
            "aud": "inferplane",
            "sub": f"projects/{project}/keys/{jti}",
            "project": project,
            "role": "admin",
            "endpoints": ["*"],
            "jti": jti,
            "iat": now,
            "nbf": now - 1,
            "exp": now + 3600,
            **others,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **claims: Any) -> str:
        """A token of these claims."""
        return jwt.encode(
            self.claims(**claims), self.private, algorithm="EdDSA", headers={"kid": self.kid}
        )

    def signed(self, header: str, payload: str) -> str:
        """A token of these very texts."""
        text = f"{base64url(header.encode())}.{base64url(payload.encode())}"
        return f"{text}.{base64url(self.private.sign(text.encode()))}"


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of a gRPC call."""
    return (("authorization", f"Bearer {token}"),)


async def start(folder: Path, signer: Signer | None, **settings: Any) -> EdgeUnderTest:
    """An edge that asks for keys, with endpoints `digits` and `other`; without a signer its policy is unknown."""
    edge = await EdgeUnderTest.start(folder, asks_for_keys=True, **settings)
    worker = await edge.add_worker("a", V1, V2)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_endpoint(Endpoint(name=OTHER, targets=(Target(V2, 1),)))
    edge.set_workers({worker.address: {V1, V2}})
    if signer is not None:
        tell(edge, signer.change(), restart=True)
        await edge.in_sync()
    return edge


def tell(edge: EdgeUnderTest, *changes: PolicyChange, restart: bool = False) -> None:
    """What metering says."""
    edge.publisher.hear_policy(PolicyUpdate(changes=changes, synced=True, restart=restart))
