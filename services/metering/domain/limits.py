"""Limits of a project or key: what the edge lets through."""

import math
from dataclasses import dataclass

from services.rpc.violations import Violations

MAX_RATE = 1_000_000.0  # requests a second
MAX_COUNT = 1_000_000  # requests at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """No limit unless one is set."""

    requests_per_second: float = 0.0
    burst: int = 0  # 0: as many as come in one second, at least 1
    concurrent_requests: int = 0
    shadow: bool = False  # count what would be refused, refuse nothing


NO_LIMITS = Limits()


def check_limits(violations: Violations, field: str, limits: Limits) -> Limits:
    """Limits that can be kept."""
    rate = limits.requests_per_second
    violations.require(
        math.isfinite(rate) and 0 <= rate <= MAX_RATE,
        f"{field}.requests_per_second",
        f"{rate} is out of range; allowed: 0 (no limit) to {MAX_RATE:.0f}",
    )
    for name, value in (
        ("burst", limits.burst),
        ("concurrent_requests", limits.concurrent_requests),
    ):
        violations.require(
            0 <= value <= MAX_COUNT,
            f"{field}.{name}",
            f"{value} is out of range; allowed: 0 to {MAX_COUNT}",
        )
    violations.require(
        limits.burst == 0 or rate != 0,
        f"{field}.burst",
        f"{limits.burst} without requests_per_second limits nothing; allowed: 0, or set both",
    )
    return limits
