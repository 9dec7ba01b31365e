"""A signing key's public half: verifies tokens, until it is retired."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """What is stored of a signing key; the private half is in a file."""

    kid: str  # RFC 7638 thumbprint of the JWK
    jwk: str  # JSON Web Key, public part
    create_time: datetime
    retire_time: datetime | None = None  # tokens of it are good until then; None: it signs

    def verifies(self, now: datetime) -> bool:
        """Whether its tokens are good."""
        return self.retire_time is None or now < self.retire_time


def retired(keys: Iterable[SigningKey], now: datetime, overlap: timedelta) -> list[SigningKey]:
    """The keys that change when none of them may verify for longer than `overlap`."""
    until = now + overlap
    return [
        replace(key, retire_time=until)
        for key in keys
        if key.retire_time is None or key.retire_time > until
    ]
