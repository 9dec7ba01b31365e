"""Who may call, as the edge must know it: keys that sign, issuers that are believed, what was revoked, limits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

# Keys are told apart by how their ids begin, so that a change is one of a sixteenth of them: ids of ours are drawn at
# random, in hexadecimal digits. What begins otherwise is among the others.
SHARDS = tuple("0123456789abcdef")
OTHERS = ""


@dataclass(frozen=True, slots=True, order=True)
class SigningKey:
    """Verifies tokens of ours."""

    kid: str
    jwk: str  # JSON Web Key, public part


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Issuer:
    """Somebody else whose tokens are believed. Claims may be nested, with dots."""

    issuer: str
    jwks: str  # JSON Web Key Set
    audiences: tuple[str, ...]
    project_claim: str
    role_claim: str
    endpoints_claim: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Limits:
    """What is let through; 0: no limit."""

    requests_per_second: float = 0.0
    burst: int = 0  # 0: as many as come in one second
    concurrent_requests: int = 0
    shadow: bool = False  # count, refuse nothing


@dataclass(frozen=True, slots=True)
class SigningKeyChange:
    """A signing key that holds from now on, or no longer (`value` is None)."""

    kid: str
    value: SigningKey | None


@dataclass(frozen=True, slots=True)
class IssuerChange:
    """An issuer that is believed from now on, or no longer (`value` is None)."""

    issuer: str
    value: Issuer | None


@dataclass(frozen=True, slots=True)
class RevocationChange:
    """A key or project (by resource name) that is not let in, or is again."""

    name: str
    revoked: bool


@dataclass(frozen=True, slots=True)
class LimitsChange:
    """Limits of a key or project (by resource name), or none any more."""

    name: str
    value: Limits | None


PolicyChange: TypeAlias = SigningKeyChange | IssuerChange | RevocationChange | LimitsChange


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyUpdate:
    """A message of the policy's watch."""

    changes: tuple[PolicyChange, ...]
    synced: bool  # False: part of the initial state, more follows
    restart: bool = False  # True: first message of a watch that begins with all there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The whole picture; each part is sorted, and the very same object until it changes.

    What may be large is in shards, of which those that are not there are empty.
    """

    signing_keys: tuple[SigningKey, ...] = ()
    issuers: tuple[Issuer, ...] = ()
    revoked_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids
    disabled_projects: tuple[str, ...] = ()  # ids
    # By resource name; projects are among the others.
    limits: Mapping[str, tuple[tuple[str, Limits], ...]] = field(default_factory=dict)


def shard_of(name: str) -> str:
    """The shard of a key or project, by its resource name."""
    head, _, ident = name.rpartition("/")
    first = ident[:1]
    return first if head.endswith("/keys") and first in SHARDS else OTHERS


@dataclass(slots=True)
class _Facts:
    """What holds. There may be hundreds of thousands of facts: only parts that have changed are looked at again."""

    signing_keys: dict[str, SigningKey] = field(default_factory=dict)
    issuers: dict[str, Issuer] = field(default_factory=dict)
    revoked_keys: dict[str, set[str]] = field(default_factory=dict)  # by shard
    disabled_projects: set[str] = field(default_factory=set)
    limits: dict[str, dict[str, Limits]] = field(default_factory=dict)  # by shard
    _picture: Policy = field(default_factory=Policy)
    _stale: set[str] = field(default_factory=set)  # fields of the picture
    _stale_revoked: set[str] = field(default_factory=set)  # shards; likewise the next
    _stale_limits: set[str] = field(default_factory=set)

    def apply(self, changes: Iterable[PolicyChange]) -> None:
        for change in changes:
            match change:
                case SigningKeyChange(kid, key):
                    _put(self.signing_keys, kid, key)
                    self._stale.add("signing_keys")
                case IssuerChange(issuer, value):
                    _put(self.issuers, issuer, value)
                    self._stale.add("issuers")
                case LimitsChange(name, limits):
                    shard = shard_of(name)
                    _put(self.limits.setdefault(shard, {}), name, limits)
                    self._stale_limits.add(shard)
                case RevocationChange(name, revoked):
                    self._revoke(name, revoked=revoked)

    def _revoke(self, name: str, *, revoked: bool) -> None:
        ident = name.rpartition("/")[2]
        if "/keys/" in name:
            shard = shard_of(name)
            names = self.revoked_keys.setdefault(shard, set())
            self._stale_revoked.add(shard)
        else:
            names = self.disabled_projects
            self._stale.add("disabled_projects")
        (names.add if revoked else names.discard)(ident)

    def picture(self) -> Policy:
        """Parts that have not changed are the very same objects as before."""
        now, stale = self._picture, self._stale
        if "signing_keys" in stale:
            now = replace(now, signing_keys=tuple(sorted(self.signing_keys.values())))
        if "issuers" in stale:
            now = replace(now, issuers=tuple(sorted(self.issuers.values())))
        if "disabled_projects" in stale:
            now = replace(now, disabled_projects=tuple(sorted(self.disabled_projects)))
        if self._stale_revoked:
            keys = {shard: tuple(sorted(self.revoked_keys[shard])) for shard in self._stale_revoked}
            now = replace(now, revoked_keys=_renewed(now.revoked_keys, keys))
        if self._stale_limits:
            limits = {
                shard: tuple(sorted(self.limits[shard].items(), key=itemgetter(0)))
                for shard in self._stale_limits
            }
            now = replace(now, limits=_renewed(now.limits, limits))
        for done in (stale, self._stale_revoked, self._stale_limits):
            done.clear()
        self._picture = now
        return now


def _renewed(
    shards: Mapping[str, tuple[_T, ...]], changed: Mapping[str, tuple[_T, ...]]
) -> dict[str, tuple[_T, ...]]:
    return {shard: names for shard, names in {**shards, **changed}.items() if names}


class PolicyBook:
    """What has been heard of the policy. While a new initial state arrives, the old one stays."""

    def __init__(self) -> None:
        self._facts = _Facts()
        self._arriving: _Facts | None = None
        self._current: Policy | None = None
        self._is_newer = False  # than the picture of it

    @property
    def current(self) -> Policy | None:
        """None: nothing complete was heard yet. Drawn when it is asked for: thousands of changes may come before."""
        self._draw()
        return self._current

    def apply(self, update: PolicyUpdate) -> bool:
        """Take a message; whether `current` may have changed."""
        if update.restart:
            self._arriving = _Facts()
        place = self._facts if self._arriving is None else self._arriving
        if not update.synced:
            self._draw()  # before half of a change is in it
        place.apply(update.changes)
        if update.synced:
            self._facts, self._arriving, self._is_newer = place, None, True
        return update.synced

    def _draw(self) -> None:
        if self._is_newer:
            self._current, self._is_newer = self._facts.picture(), False


def _put(values: dict[str, _T], name: str, value: _T | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
