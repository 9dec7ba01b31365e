"""An API key: whom its token lets in, to what, until when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from services.metering.domain.fields import check_tags, check_text
from services.metering.domain.limits import NO_LIMITS, Limits, check_limits
from services.rpc import names
from services.rpc.errors import FailedPreconditionError
from services.rpc.names import KeyName
from services.rpc.update_mask import masked_fields
from services.rpc.violations import Violations

ALL_ENDPOINTS = "*"
MAX_ENDPOINTS = 100
DEFAULT_LIFETIME = timedelta(days=90)
LONGEST_LIFETIME = timedelta(days=366)
DEFAULT_OVERLAP = timedelta(days=1)
_SHORTEST_LIFETIME = timedelta(seconds=1)  # tokens count whole seconds
_CHANGEABLE = ("label", "tags", "limits")


class Role(StrEnum):
    """What a key may do, from least to most."""

    CALLER = "caller"
    VIEWER = "viewer"
    DEPLOYER = "deployer"
    ADMIN = "admin"


class KeyState(StrEnum):
    """Whether a key lets in, and why not; also the values of a metric's label."""

    LIVE = "live"
    ROTATED = "rotated"  # live for the rest of the overlap
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInput:
    """What a caller says of a key."""

    label: str = ""
    role: Role | None = None
    endpoints: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored key. Role, endpoints and times are said in its token, so they never change."""

    name: KeyName
    kid: str  # of the signing key that signed its token
    role: Role
    endpoints: tuple[str, ...]
    create_time: datetime
    expire_time: datetime  # whole seconds, as tokens have
    label: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = NO_LIMITS
    revoke_time: datetime | None = None  # in the future: until when a rotated key is let in
    successor: KeyName | None = None

    def state(self, now: datetime) -> KeyState:
        """Whether it lets in, as far as the key itself says: its project and signing key have a say too."""
        if now >= self.expire_time:
            return KeyState.EXPIRED
        if self.revoke_time is None:
            return KeyState.LIVE
        return KeyState.REVOKED if now >= self.revoke_time else KeyState.ROTATED


@dataclass(frozen=True, slots=True)
class KeyIssue:
    """What a new key is made of besides what the caller says."""

    name: KeyName
    kid: str
    now: datetime
    lifetime: timedelta


def check_lifetime(violations: Violations, lifetime: timedelta) -> None:
    """A lifetime that a token can have."""
    violations.require(
        _SHORTEST_LIFETIME <= lifetime <= LONGEST_LIFETIME,
        "lifetime",
        f"{lifetime.total_seconds():,.12g} s; allowed: 1 second to {LONGEST_LIFETIME.days} days",
    )


def check_overlap(violations: Violations, overlap: timedelta) -> None:
    """For how long what is replaced may go on."""
    violations.require(
        timedelta() <= overlap <= LONGEST_LIFETIME,
        "overlap",
        f"{overlap.total_seconds():,.12g} s; allowed: 0 to {LONGEST_LIFETIME.days} days",
    )


def _check_endpoints(violations: Violations, role: Role | None, endpoints: Sequence[str]) -> None:
    where = "api_key.endpoints"
    violations.require(
        len(endpoints) <= MAX_ENDPOINTS,
        where,
        f"{len(endpoints)} entries; allowed: at most {MAX_ENDPOINTS}",
    )
    violations.require(
        role is not Role.CALLER or len(endpoints) > 0,
        where,
        f"none, but a caller's key is for endpoints; allowed: their ids, or {ALL_ENDPOINTS!r} for all",
    )
    if ALL_ENDPOINTS in endpoints:
        violations.require(
            len(endpoints) == 1, where, f"{ALL_ENDPOINTS!r} means all; allowed: nothing beside it"
        )
        return
    for index, endpoint in enumerate(endpoints[:MAX_ENDPOINTS]):
        violations.take(names.check_id, f"{where}[{index}]", endpoint)


def check_key(given: KeyInput, lifetime: timedelta) -> None:
    """Refuse what no key can be, naming every field that breaks a rule."""
    violations = Violations()
    check_lifetime(violations, lifetime)
    _check_changeable(violations, given)
    violations.require(
        given.role is not None,
        "api_key.role",
        f"none; allowed: {', '.join(f'ROLE_{role.name}' for role in Role)}",
    )
    _check_endpoints(violations, given.role, given.endpoints)
    violations.raise_if_any()


def _check_changeable(violations: Violations, given: KeyInput) -> None:
    check_text(violations, "api_key.label", given.label)
    check_tags(violations, "api_key.tags", given.tags)
    check_limits(violations, "api_key.limits", given.limits)


def new_key(given: KeyInput, issue: KeyIssue) -> ApiKey:
    """A key of what `check_key` let pass."""
    assert given.role is not None
    seconds = int(issue.lifetime.total_seconds())
    return ApiKey(
        name=issue.name,
        kid=issue.kid,
        role=given.role,
        endpoints=tuple(dict.fromkeys(given.endpoints)),
        create_time=issue.now,
        expire_time=issue.now.replace(microsecond=0) + timedelta(seconds=seconds),
        label=given.label,
        tags=dict(sorted(given.tags.items())),
        limits=given.limits,
    )


def changed_key(key: ApiKey, given: KeyInput, mask: Sequence[str]) -> ApiKey:
    """The key with the masked fields as given."""
    violations = Violations()
    _check_changeable(violations, given)
    violations.raise_if_any()
    new = replace(given, tags=dict(sorted(given.tags.items())))
    fields = masked_fields(mask, _CHANGEABLE)
    return replace(key, **{name: getattr(new, name) for name in fields})


def rotated(key: ApiKey, issue: KeyIssue, overlap: timedelta) -> tuple[ApiKey, ApiKey]:
    """The old key, which goes on for `overlap`, and the new one with the same rights.

    FailedPreconditionError if the old one doesn't let in any more or has a successor already.
    """
    check_rotatable(key, issue.now)
    successor = new_key(
        KeyInput(
            label=key.label,
            role=key.role,
            endpoints=key.endpoints,
            tags=key.tags,
            limits=key.limits,
        ),
        issue,
    )
    until = min(issue.now + overlap, key.expire_time)
    return replace(key, revoke_time=until, successor=successor.name), successor


def check_rotatable(key: ApiKey, now: datetime) -> None:
    """Refuse to make a successor of what isn't live, with a reason for each state."""
    state = key.state(now)
    if state is KeyState.LIVE:
        return
    if state is KeyState.ROTATED:
        said = f"was rotated already; its successor is {key.successor}"
    else:
        said = f"is {state.value}; create a new key"
    raise FailedPreconditionError(
        f"{key.name} {said}",
        reason=f"KEY_{state.name}",
        metadata={"resource": str(key.name), "successor": str(key.successor or "")},
    )


def revoked(key: ApiKey, now: datetime) -> ApiKey:
    """The key, not let in from now on; unchanged if that is so already."""
    if key.revoke_time is not None and key.revoke_time <= now:
        return key
    return replace(key, revoke_time=now)
