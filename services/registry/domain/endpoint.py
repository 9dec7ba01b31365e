"""Endpoints: what clients call, and the rules of its traffic policy."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from services.registry.domain.fields import check_description, check_range, check_tags
from services.rpc.names import EndpointName, TargetName, parse_target, shown
from services.rpc.violations import Violations

MAX_TARGETS = 32
MAX_WEIGHT = 1_000_000
MAX_RETRIES = 10
MAX_COUNT = 1_000_000  # calls or retries in flight
LONGEST_TIMEOUT = timedelta(hours=1)
RESERVED_HEADERS = "x-inferplane-"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,128}")  # RFC 9110, 5.6.2: token


@dataclass(frozen=True, slots=True)
class Target:
    """A share of the traffic."""

    target: TargetName
    weight: float


@dataclass(frozen=True, slots=True)
class Mirror:
    """A copy of the traffic whose answers are thrown away."""

    target: TargetName
    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How calls that no worker answered are tried again; None means the default."""

    num_retries: int | None = None
    budget_percent: float | None = None
    min_retry_concurrency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitLimits:
    """Bounds per version's cluster; 0 means the default."""

    max_requests: int = 0
    max_mirror_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What clients call as `model_name`, and its traffic policy."""

    name: EndpointName
    description: str = ""
    targets: tuple[Target, ...] = ()
    sticky_header: str = ""
    mirror: Mirror | None = None
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = None
    circuit_limits: CircuitLimits | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    create_time: datetime
    update_time: datetime
    etag: str = ""

    @property
    def references(self) -> tuple[tuple[str, TargetName], ...]:
        """Every version or alias that the policy names, with the path of the field."""
        found: list[tuple[str, TargetName]] = [
            (f"targets[{index}].target", target.target) for index, target in enumerate(self.targets)
        ]
        if self.mirror is not None:
            found.append(("mirror.target", self.mirror.target))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInput:
    """A traffic policy as the caller wrote it, unchecked."""

    description: str = ""
    targets: Sequence[tuple[str, float]] = ()  # target, weight
    sticky_header: str = ""
    mirror: tuple[str, float] | None = None  # target, percent
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = None
    circuit_limits: CircuitLimits | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def _description(violations: Violations, given: PolicyInput) -> str:
    return check_description(violations, given.description)


def _targets(violations: Violations, given: PolicyInput) -> tuple[Target, ...]:
    count = len(given.targets)
    violations.require(
        1 <= count <= MAX_TARGETS, "targets", f"{count} targets; allowed: 1 to {MAX_TARGETS}"
    )
    checked: list[Target] = []
    first_use: dict[TargetName, int] = {}
    for index, (text, weight) in enumerate(given.targets):
        target = violations.take(parse_target, f"targets[{index}].target", text)
        violations.require(
            math.isfinite(weight) and 0 < weight <= MAX_WEIGHT,
            f"targets[{index}].weight",
            f"{weight:g}; allowed: a finite number greater than 0, at most {MAX_WEIGHT}",
        )
        if target is None:
            continue
        if target in first_use:
            violations.add(
                f"targets[{index}].target",
                f"{target} is targets[{first_use[target]}] already; allowed: every version once",
            )
        first_use.setdefault(target, index)
        checked.append(Target(target, weight))
    return tuple(checked)


def _sticky_header(violations: Violations, given: PolicyInput) -> str:
    header = given.sticky_header
    if header:
        violations.require(
            _HEADER.fullmatch(header) is not None and not header.startswith(RESERVED_HEADERS),
            "sticky_header",
            f"{shown(header)}; allowed: a lower-case header name of at most 128 characters, not"
            f" beginning with ':' or '{RESERVED_HEADERS}'",
        )
    return header


def _mirror(violations: Violations, given: PolicyInput) -> Mirror | None:
    if given.mirror is None:
        return None
    text, percent = given.mirror
    target = violations.take(parse_target, "mirror.target", text)
    _check_percent(violations, "mirror.percent", percent, zero_allowed=False)
    return None if target is None else Mirror(target, percent)


def _check_percent(
    violations: Violations, field: str, percent: float, *, zero_allowed: bool
) -> None:
    lowest = "from 0" if zero_allowed else "greater than 0"
    holds = math.isfinite(percent) and 0 <= percent <= 100 and (percent > 0 or zero_allowed)
    violations.require(holds, field, f"{percent:g}; allowed: a finite number {lowest}, at most 100")


def _retry_policy(violations: Violations, given: PolicyInput) -> RetryPolicy | None:
    policy = given.retry_policy
    if policy is None:
        return None
    if policy.num_retries is not None:
        check_range(violations, "retry_policy.num_retries", policy.num_retries, MAX_RETRIES)
    if policy.budget_percent is not None:
        _check_percent(
            violations, "retry_policy.budget_percent", policy.budget_percent, zero_allowed=True
        )
    if policy.min_retry_concurrency is not None:
        check_range(
            violations,
            "retry_policy.min_retry_concurrency",
            policy.min_retry_concurrency,
            MAX_COUNT,
        )
    return policy


def _timeout(violations: Violations, given: PolicyInput) -> timedelta | None:
    timeout = given.timeout
    if timeout is None or timeout == timedelta():
        return None
    violations.require(
        timedelta() < timeout <= LONGEST_TIMEOUT,
        "timeout",
        f"{timeout.total_seconds():g} s; allowed: greater than 0 s,"
        f" at most {LONGEST_TIMEOUT.total_seconds():g} s",
    )
    return timeout


def _circuit_limits(violations: Violations, given: PolicyInput) -> CircuitLimits | None:
    limits = given.circuit_limits
    if limits is not None:
        check_range(violations, "circuit_limits.max_requests", limits.max_requests, MAX_COUNT)
        check_range(
            violations,
            "circuit_limits.max_mirror_requests",
            limits.max_mirror_requests,
            MAX_COUNT,
        )
    return limits


def _tags(violations: Violations, given: PolicyInput) -> Mapping[str, str]:
    return check_tags(violations, "tags", given.tags)


_RULES: Mapping[str, Callable[[Violations, PolicyInput], object]] = {
    "description": _description,
    "targets": _targets,
    "sticky_header": _sticky_header,
    "mirror": _mirror,
    "retry_policy": _retry_policy,
    "timeout": _timeout,
    "circuit_limits": _circuit_limits,
    "tags": _tags,
}
POLICY_FIELDS: tuple[str, ...] = tuple(_RULES)


def check_policy(given: PolicyInput, fields: Sequence[str] = POLICY_FIELDS) -> dict[str, Any]:
    """The named fields of a policy, checked: keyword arguments of Endpoint. All violations at once."""
    violations = Violations()
    checked = {field: _RULES[field](violations, given) for field in fields}
    violations.raise_if_any()
    return checked
