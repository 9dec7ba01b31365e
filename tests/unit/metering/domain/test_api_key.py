"""Rules of API keys."""

from datetime import timedelta
from typing import Any

import pytest

from services.metering.domain.api_key import (
    LONGEST_LIFETIME,
    KeyInput,
    KeyIssue,
    KeyState,
    Role,
    changed_key,
    check_key,
    new_key,
    revoked,
    rotated,
)
from services.metering.domain.limits import Limits
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError
from services.rpc.names import KeyName
from tests.unit.metering.identities import DAY, NOW, key

GOOD: dict[str, Any] = {"role": Role.CALLER, "endpoints": ("chat",)}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="one endpoint"),
        pytest.param({"endpoints": ("*",)}, id="all endpoints"),
        pytest.param({"endpoints": tuple(f"e{i}" for i in range(100))}, id="100 endpoints"),
        pytest.param({"role": Role.VIEWER, "endpoints": ()}, id="a viewer without endpoints"),
        pytest.param({"tags": {f"k{i}": "v" for i in range(32)}}, id="32 tags"),
        pytest.param({"label": "x" * 128}, id="a label of 128 characters"),
    ],
)
def test_keys_that_can_be(given: dict[str, Any]) -> None:
    """Within the limits nothing is refused."""
    check_key(KeyInput(**{**GOOD, **given}), DAY)


@pytest.mark.parametrize(
    ("given", "lifetime", "field"),
    [
        pytest.param({"role": None}, DAY, "api_key.role", id="no role"),
        pytest.param({"endpoints": ()}, DAY, "api_key.endpoints", id="a caller of nothing"),
        pytest.param(
            {"endpoints": tuple(f"e{i}" for i in range(101))},
            DAY,
            "api_key.endpoints",
            id="101 endpoints",
        ),
        pytest.param({"endpoints": ("*", "chat")}, DAY, "api_key.endpoints", id="all and one"),
        pytest.param({"endpoints": ("chat", "Ch at")}, DAY, "api_key.endpoints[1]", id="no id"),
        pytest.param({"label": "x" * 129}, DAY, "api_key.label", id="long label"),
        pytest.param({"label": "a\nb"}, DAY, "api_key.label", id="label of two lines"),
        pytest.param({"tags": {"": "v"}}, DAY, "api_key.tags[]", id="empty tag key"),
        pytest.param({"tags": {"k": ""}}, DAY, "api_key.tags[k]", id="empty tag value"),
        pytest.param({"tags": {"k": "v" * 64}}, DAY, "api_key.tags[k]", id="long tag value"),
        pytest.param(
            {"tags": {f"k{i}": "v" for i in range(33)}}, DAY, "api_key.tags", id="33 tags"
        ),
        pytest.param(
            {"limits": Limits(burst=-1)}, DAY, "api_key.limits.burst", id="negative limit"
        ),
        pytest.param({}, timedelta(), "lifetime", id="no lifetime"),
        pytest.param({}, timedelta(milliseconds=999), "lifetime", id="less than a second"),
        pytest.param({}, LONGEST_LIFETIME + timedelta(seconds=1), "lifetime", id="too long"),
    ],
)
def test_keys_that_can_not_be(given: dict[str, Any], lifetime: timedelta, field: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_key(KeyInput(**{**GOOD, **given}), lifetime)
    assert field in [violation.field for violation in caught.value.violations]


def test_all_violations_come_at_once() -> None:
    """Who sends three mistakes hears of three."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_key(KeyInput(label="\0"), timedelta())
    fields = [violation.field for violation in caught.value.violations]
    assert fields == ["lifetime", "api_key.label", "api_key.role"]


def test_a_new_key_counts_whole_seconds() -> None:
    """So that what is stored is what its token says."""
    issue = KeyIssue(KeyName("p", "a"), "k1", NOW + timedelta(seconds=0.75), timedelta(seconds=9.5))
    made = new_key(KeyInput(**{**GOOD, "endpoints": ("b", "a", "b")}), issue)
    assert made.create_time == NOW + timedelta(seconds=0.75)
    assert made.expire_time == NOW + timedelta(seconds=9)
    assert made.endpoints == ("b", "a")


def test_states() -> None:
    """At the very moment of its end a key has ended."""
    rotated_key = key(revoke_time=NOW + DAY)
    assert key().state(NOW) is KeyState.LIVE
    assert key().state(NOW + 90 * DAY) is KeyState.EXPIRED
    assert rotated_key.state(NOW) is KeyState.ROTATED
    assert rotated_key.state(NOW + DAY) is KeyState.REVOKED


def test_a_successor_has_the_same_rights_and_the_old_one_goes_on_for_a_while() -> None:
    """Both let in during the overlap; the old one names the new one."""
    old = key(label="l", tags={"a": "b"}, limits=Limits(burst=0, concurrent_requests=3))
    ended, successor = rotated(old, KeyIssue(KeyName("p", "b"), "k2", NOW + DAY, DAY), DAY)
    assert (ended.revoke_time, ended.successor) == (NOW + 2 * DAY, successor.name)
    assert (successor.kid, successor.expire_time) == ("k2", NOW + 2 * DAY)
    same = ("role", "endpoints", "label", "tags", "limits")
    assert [getattr(successor, name) for name in same] == [getattr(old, name) for name in same]


def test_an_overlap_never_outlasts_the_token() -> None:
    """A key whose token ends sooner is over with it."""
    ended, _ = rotated(key(), KeyIssue(KeyName("p", "b"), "k1", NOW, DAY), 300 * DAY)
    assert ended.revoke_time == NOW + 90 * DAY


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"revoke_time": NOW}, "KEY_REVOKED", id="revoked"),
        pytest.param({"expire_time": NOW}, "KEY_EXPIRED", id="expired"),
        pytest.param(
            {"revoke_time": NOW + DAY, "successor": KeyName("p", "z")},
            "KEY_ROTATED",
            id="rotated before",
        ),
    ],
)
def test_what_is_not_live_has_no_successor(fields: dict[str, Any], reason: str) -> None:
    """The reason says why."""
    with pytest.raises(FailedPreconditionError) as caught:
        rotated(key(**fields), KeyIssue(KeyName("p", "b"), "k1", NOW, DAY), DAY)
    assert caught.value.reason == reason


def test_revoking_is_at_once_and_again_is_harmless() -> None:
    """A rotated key's overlap ends; a revoked one keeps its time."""
    assert revoked(key(), NOW).revoke_time == NOW
    assert revoked(key(revoke_time=NOW + DAY), NOW).revoke_time == NOW
    assert revoked(key(revoke_time=NOW), NOW + DAY).revoke_time == NOW


def test_changes_follow_the_mask() -> None:
    """What the token says can't be named."""
    given = KeyInput(label="new", tags={"b": "2", "a": "1"})
    assert changed_key(key(label="old"), given, ["tags"]) == key(
        label="old", tags={"a": "1", "b": "2"}
    )
    assert changed_key(key(limits=Limits(burst=0, shadow=True)), given, []).limits == Limits()
    with pytest.raises(InvalidArgumentError, match="no such field: 'role'"):
        changed_key(key(), given, ["role"])
