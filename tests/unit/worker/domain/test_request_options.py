"""Parameters of a request: which mean something, and what is refused."""

import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.request_options import PLAIN, AnswerFacts, RequestOptions, read_options


def test_parameters_that_mean_something() -> None:
    """A timeout is in microseconds, as in Triton; 0 is none."""
    assert read_options(
        {"priority": 2, "timeout": 1500, "timing": True, "no_store": True}
    ) == RequestOptions(priority=2, timeout=0.0015, timing=True, no_store=True)
    assert read_options({"timeout": 0, "priority": 0, "timing": False}) is PLAIN


def test_parameters_that_mean_nothing_are_let_pass() -> None:
    """Whatever their type."""
    assert read_options({"any": "thing", "headers": {"a": [1]}, "x": None}) is PLAIN
    assert read_options({}) is PLAIN


@pytest.mark.parametrize(
    ("parameters", "fields"),
    [
        pytest.param({"timing": 1}, ["parameters.timing"], id="a number is no flag"),
        pytest.param({"priority": True}, ["parameters.priority"], id="a flag is no number"),
        pytest.param({"priority": -1}, ["parameters.priority"], id="negative"),
        pytest.param({"timeout": 1.5}, ["parameters.timeout"], id="a part of a microsecond"),
        pytest.param(
            {"timeout": "1", "no_store": "yes"},
            ["parameters.timeout", "parameters.no_store"],
            id="all at once",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(parameters: dict[str, object], fields: list[str]) -> None:
    """Each is named, with what is allowed."""
    with pytest.raises(InvalidArgumentError, match="allowed") as caught:
        read_options(parameters)
    assert [violation.field for violation in caught.value.violations] == fields


def test_facts_are_told_if_asked_for() -> None:
    """A hit is always told, times only to those that want them."""
    facts = AnswerFacts()
    facts.ran(0.001, 2_500, 4)
    assert facts.parameters() == {}
    facts.cache_hit = True
    assert facts.parameters() == {"cache_hit": True}
    facts.timing = True
    assert facts.parameters() == {
        "cache_hit": True,
        "queue_us": 1000,
        "compute_us": 2,
        "batch_size": 4,
    }
