"""Texts are kept only where a rule says so, and as many of them as it says."""

import uuid

import pytest

from services.worker.domain.capture_rule import CaptureRule, rule_for

CHAT = CaptureRule(endpoints=frozenset({"chat"}), projects=frozenset({"*"}))
LAB = CaptureRule(endpoints=frozenset({"*"}), projects=frozenset({"lab"}), retention_days=1)
ID = bytes(16)


@pytest.mark.parametrize(
    ("endpoint", "project", "expected"),
    [
        pytest.param("chat", "shop", CHAT, id="endpoint is named"),
        pytest.param("other", "lab", LAB, id="project is named"),
        pytest.param("chat", "lab", CHAT, id="the first that fits counts"),
        pytest.param("other", "shop", None, id="neither is named"),
        pytest.param("", "", None, id="nobody in particular"),
    ],
)
def test_both_must_fit(endpoint: str, project: str, expected: CaptureRule | None) -> None:
    """Endpoint and project."""
    assert rule_for([CHAT, LAB], endpoint, project, ID) is expected


def test_without_rules_nothing_fits() -> None:
    """The default."""
    assert rule_for([], "chat", "lab", ID) is None


def test_a_fraction_is_of_requests() -> None:
    """About as many as it says, and the same ones wherever they are asked about."""
    rule = CaptureRule(endpoints=frozenset({"*"}), projects=frozenset({"*"}), fraction=0.25)
    ids = [
        uuid.UUID(int=n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).bytes for n in range(4000)
    ]
    taken = [rule_for([rule], "e", "p", request) is not None for request in ids]
    assert 800 < sum(taken) < 1200
    assert taken == [rule_for([rule], "e", "p", request) is not None for request in ids]
