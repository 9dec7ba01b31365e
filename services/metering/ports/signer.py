"""The private halves of signing keys: they are made, they sign, and nobody else sees them."""

from collections.abc import Collection, Mapping
from typing import Protocol

from services.metering.domain.signing_key import SigningKey


class Signer(Protocol):
    """Keeps private keys by `kid`. One caller at a time; a key is durable before `make` returns."""

    def make(self) -> tuple[str, str]:
        """A new key: its kid and its public half as a JSON Web Key."""
        ...

    def has(self, kid: str) -> bool:
        """Whether it can sign with this key."""
        ...

    def sign(self, kid: str, claims: Mapping[str, object]) -> str:
        """A token."""
        ...

    def read(self, key: SigningKey, token: str) -> Mapping[str, object] | None:
        """The claims of a token that this key signed, whether expired or not; None if it is none."""
        ...

    def keep_only(self, kids: Collection[str]) -> None:
        """Destroy all others."""
        ...
