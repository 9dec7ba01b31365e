"""Where issuers publish their keys."""

from dataclasses import dataclass
from typing import Protocol

from services.metering.domain.issuer import TrustedIssuer


@dataclass(frozen=True, slots=True)
class FetchedKeys:
    """An issuer's keys as it sent them."""

    jwks: str  # nothing has been checked but its size
    uri: str  # where they were
    etag: str  # to ask again with; empty: the issuer gives none


class JwksSource(Protocol):
    """Asks issuers. Any number of callers at once."""

    async def fetch(
        self, issuer: TrustedIssuer, known: FetchedKeys | None = None
    ) -> FetchedKeys | None:
        """The issuer's keys; with `known`, from the same place, None if they are still the same.

        UnavailableError if the issuer can't be asked, InvalidArgumentError if its answer can't be used.
        """
        ...
