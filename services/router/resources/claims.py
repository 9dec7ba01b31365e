"""Where a token that was let in says which endpoints it is for."""

from dataclasses import dataclass
from typing import Any

from services.router.domain.policy import Policy

METADATA = "envoy.filters.http.jwt_authn"  # the namespace in which Envoy keeps verified claims
OURS = "token"
EVERY_ENDPOINT = "*"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of one kind of token: the first part of its path is the provider's key."""

    path: tuple[str, ...]

    def has(self, value: str) -> list[dict[str, Any]]:
        """RBAC principals, of which one is enough: the claim is a list with this value, or is the value."""
        exact = {"string_match": {"exact": value}}
        path = [{"key": part} for part in self.path]
        matchers = [
            {"filter": METADATA, "path": path, "value": form}
            for form in ({"list_match": {"one_of": exact}}, exact)
        ]
        return [{"sourced_metadata": {"metadata_matcher": matcher}} for matcher in matchers]


def of(policy: Policy | None) -> tuple[Claim, ...]:
    """All places where endpoints are named: ours, and one for each issuer."""
    issuers = policy.issuers if policy is not None else ()
    theirs = (
        Claim((provider(i), *issuer.endpoints_claim.split("."))) for i, issuer in enumerate(issuers)
    )
    return (Claim((OURS, "endpoints")), *theirs)


def provider(index: int) -> str:
    """The key of an issuer, by its place among the policy's."""
    return f"issuer{index}"
