"""Rules of traffic policies."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from services.registry.domain.endpoint import (
    CircuitLimits,
    Mirror,
    PolicyInput,
    RetryPolicy,
    Target,
    check_policy,
)
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import AliasName, VersionName

V1, CHAMPION = "models/m/versions/1", "models/m/aliases/champion"
GOOD = PolicyInput(targets=[(V1, 1.0)])


def test_a_whole_policy_is_taken() -> None:
    """Every field comes out parsed."""
    given = PolicyInput(
        description="d",
        targets=[(V1, 90), (CHAMPION, 1e-9)],
        sticky_header="x-user",
        mirror=(V1, 100),
        retry_policy=RetryPolicy(num_retries=0, budget_percent=0, min_retry_concurrency=0),
        timeout=timedelta(hours=1),
        circuit_limits=CircuitLimits(max_requests=5),
        tags={"b": "2", "a": "1"},
    )
    checked = check_policy(given)
    version = VersionName("m", "1")
    assert checked["targets"] == (Target(version, 90), Target(AliasName("m", "champion"), 1e-9))
    assert checked["mirror"] == Mirror(version, 100)
    assert checked["timeout"] == timedelta(hours=1)
    assert list(checked["tags"]) == ["a", "b"]


def test_zero_timeout_is_unset() -> None:
    """0 s means the default, as the message says."""
    assert check_policy(replace(GOOD, timeout=timedelta()))["timeout"] is None


def test_only_masked_fields_are_checked() -> None:
    """A field outside the mask may be anything."""
    given = PolicyInput(description="new", targets=[], sticky_header=":bad")
    assert check_policy(given, ["description"]) == {"description": "new"}


@pytest.mark.parametrize("weight", [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1_000_000.1])
def test_weights_that_are_refused(weight: float) -> None:
    """A weight is finite, greater than 0 and at most a million."""
    with pytest.raises(InvalidArgumentError) as refused:
        check_policy(PolicyInput(targets=[(V1, 1), (CHAMPION, weight)]))
    (violation,) = refused.value.violations
    assert violation.field == "targets[1].weight"
    assert f"{weight:g}" in violation.description
    assert "allowed: a finite number greater than 0, at most 1000000" in violation.description


@pytest.mark.parametrize("weight", [5e-324, 1, 1_000_000])
def test_weights_that_are_taken(weight: float) -> None:
    """Both ends of the range pass."""
    assert check_policy(PolicyInput(targets=[(V1, weight)]))["targets"][0].weight == weight


HEADERS_REFUSED = [
    ":authority",
    "X-User",
    "x user",
    "x-inferplane-endpoint",
    "x-inferplane-",
    "ü",
    "a" * 129,
    "a\r\nb",
    "a:b",
]


@pytest.mark.parametrize("header", HEADERS_REFUSED)
def test_sticky_headers_that_are_refused(header: str) -> None:
    """Pseudo-headers, reserved ones, and what is no lower-case header name."""
    with pytest.raises(InvalidArgumentError) as refused:
        check_policy(replace(GOOD, sticky_header=header))
    assert [violation.field for violation in refused.value.violations] == ["sticky_header"]


@pytest.mark.parametrize("header", ["", "cookie", "x-user-id", "x_user.1", "a" * 128])
def test_sticky_headers_that_are_taken(header: str) -> None:
    """Any other header may keep a caller on its side."""
    assert check_policy(replace(GOOD, sticky_header=header))["sticky_header"] == header


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(PolicyInput(), "targets", id="no target"),
        pytest.param(
            PolicyInput(targets=[(f"models/m/versions/{n}", 1) for n in range(33)]),
            "targets",
            id="33 targets",
        ),
        pytest.param(PolicyInput(targets=[("", 1)]), "targets[0].target", id="no name"),
        pytest.param(PolicyInput(targets=[("models/m", 1)]), "targets[0].target", id="a model"),
        pytest.param(
            PolicyInput(targets=[("models/../versions/1", 1)]), "targets[0].target", id="dots"
        ),
        pytest.param(PolicyInput(targets=[(V1, 1), (V1, 2)]), "targets[1].target", id="twice"),
        pytest.param(replace(GOOD, mirror=("x", 1)), "mirror.target", id="mirror to nothing"),
        pytest.param(replace(GOOD, mirror=(V1, 0)), "mirror.percent", id="mirror of 0 %"),
        pytest.param(replace(GOOD, mirror=(V1, 100.1)), "mirror.percent", id="over 100 %"),
        pytest.param(replace(GOOD, mirror=(V1, math.nan)), "mirror.percent", id="mirror NaN"),
        pytest.param(
            replace(GOOD, retry_policy=RetryPolicy(num_retries=11)),
            "retry_policy.num_retries",
            id="11 retries",
        ),
        pytest.param(
            replace(GOOD, retry_policy=RetryPolicy(num_retries=-1)),
            "retry_policy.num_retries",
            id="-1 retries",
        ),
        pytest.param(
            replace(GOOD, retry_policy=RetryPolicy(budget_percent=math.inf)),
            "retry_policy.budget_percent",
            id="endless budget",
        ),
        pytest.param(
            replace(GOOD, retry_policy=RetryPolicy(min_retry_concurrency=-1)),
            "retry_policy.min_retry_concurrency",
            id="negative concurrency",
        ),
        pytest.param(replace(GOOD, timeout=timedelta(seconds=-1)), "timeout", id="past"),
        pytest.param(
            replace(GOOD, timeout=timedelta(hours=1, microseconds=1)), "timeout", id="too long"
        ),
        pytest.param(
            replace(GOOD, circuit_limits=CircuitLimits(max_requests=-1)),
            "circuit_limits.max_requests",
            id="negative limit",
        ),
        pytest.param(replace(GOOD, tags={"": "x"}), "tags", id="empty key"),
        pytest.param(replace(GOOD, tags={"k": "x" * 256}), "tags[k]", id="long value"),
        pytest.param(replace(GOOD, tags={str(n): "" for n in range(65)}), "tags", id="65 tags"),
        pytest.param(replace(GOOD, description="x" * 4097), "description", id="long text"),
    ],
)
def test_policies_that_are_refused(given: PolicyInput, field: str) -> None:
    """The violation names the field, and says what is allowed."""
    with pytest.raises(InvalidArgumentError) as refused:
        check_policy(given)
    (violation,) = refused.value.violations
    assert violation.field == field
    assert "allowed: " in violation.description


def test_all_violations_come_at_once() -> None:
    """Everything that is wrong is said in one answer, in the order of the fields."""
    given = PolicyInput(targets=[("x", -1), (V1, math.nan)], sticky_header=":a", mirror=("y", 0))
    with pytest.raises(InvalidArgumentError) as refused:
        check_policy(given)
    assert [violation.field for violation in refused.value.violations] == [
        "targets[0].target",
        "targets[0].weight",
        "targets[1].weight",
        "sticky_header",
        "mirror.target",
        "mirror.percent",
    ]
