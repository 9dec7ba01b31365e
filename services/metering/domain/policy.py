"""What the edge must know: facts about keys and projects, each with the time in which it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias

from services.metering.domain.api_key import ApiKey
from services.metering.domain.limits import NO_LIMITS, Limits
from services.metering.domain.project import Project
from services.metering.domain.signing_key import SigningKey

# Whoever verifies a token takes it for a while after its end, for the sake of clocks that differ (Envoy: 60 s).
# What is said of a key outlasts it by more than that.
CLOCK_SKEW = timedelta(minutes=5)


class FactKind(Enum):
    """The sorts of facts, in the order in which a snapshot tells them."""

    SIGNING_KEY = 1
    ISSUER = 2
    REVOCATION = 3
    LIMITS = 4


FactKey: TypeAlias = tuple[
    FactKind, str
]  # what is said, and of whom (a resource name, kid or issuer)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Verifies tokens of ours."""

    jwk: str


@dataclass(frozen=True, slots=True)
class Revocation:
    """A key or project isn't let in, although tokens are good until then; None: without end."""

    expire_time: datetime | None


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """Somebody else whose tokens are believed."""

    jwks: str  # JSON Web Key Set
    audiences: tuple[str, ...]
    project_claim: str
    role_claim: str
    endpoints_claim: str


Fact: TypeAlias = PublicKey | Revocation | Limits | IssuerKeys


@dataclass(frozen=True, slots=True)
class Span:
    """A fact and when it holds: from `begins` (None: always was) until just before `ends` (None: for good)."""

    key: FactKey
    fact: Fact | None  # None: it doesn't hold
    begins: datetime | None = None
    ends: datetime | None = None

    def at(self, now: datetime) -> Fact | None:
        """The fact if it holds now."""
        if (self.begins is not None and now < self.begins) or self.over(now):
            return None
        return self.fact

    def over(self, now: datetime) -> bool:
        """Whether it will never hold from now on."""
        return self.fact is None or (self.ends is not None and now >= self.ends)

    def next_change(self, now: datetime) -> datetime | None:
        """When it begins or ends next; None if it stays as it is."""
        if self.over(now):
            return None
        if self.begins is not None and now < self.begins:
            return self.begins
        return self.ends


def _limits_span(name: str, limits: Limits, ends: datetime | None) -> Span:
    return Span((FactKind.LIMITS, name), None if limits == NO_LIMITS else limits, None, ends)


def project_spans(project: Project) -> Sequence[Span]:
    """What the edge must know of a project."""
    name = str(project.name)
    revocation = Revocation(None) if project.disabled else None
    return (
        Span((FactKind.REVOCATION, name), revocation),
        _limits_span(name, project.limits, None),
    )


def key_spans(key: ApiKey) -> Sequence[Span]:
    """What the edge must know of a key: nothing if it has no limits and just runs until it expires.

    Limits outlast a revocation, though nobody is let in to use them: so it is a change of the revoked keys alone, and
    doesn't wait for the limits of all keys to be told anew.
    """
    name = str(key.name)
    known_until = key.expire_time + CLOCK_SKEW
    revocation = None if key.revoke_time is None else Revocation(key.expire_time)
    return (
        Span((FactKind.REVOCATION, name), revocation, key.revoke_time, known_until),
        _limits_span(name, key.limits, known_until),
    )


def in_policy(key: ApiKey) -> bool:
    """Whether the edge must be told anything about this key."""
    return key.revoke_time is not None or key.limits != NO_LIMITS


def signing_span(key: SigningKey) -> Span:
    """What the edge must know of a signing key."""
    return Span((FactKind.SIGNING_KEY, key.kid), PublicKey(key.jwk), None, key.retire_time)
