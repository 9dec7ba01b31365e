"""What settings make of a request's options; how instances share a machine."""

import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain import instance_plan
from services.worker.domain.assignment import OversizePolicy, RunSettings
from services.worker.domain.instance_plan import Instance
from services.worker.domain.queue_rules import QueueRules
from services.worker.domain.request_options import PLAIN, RequestOptions
from tests.unit.worker.domain.queue_requests import request

LEVELS = RunSettings(priority_levels=3)


def level(settings: RunSettings, priority: int) -> int:
    terms = request().terms
    QueueRules.of(settings, 4).apply(terms, RequestOptions(priority=priority))
    return terms.level


@pytest.mark.parametrize(
    ("settings", "priority", "expected"),
    [
        pytest.param(LEVELS, 1, 0, id="the first"),
        pytest.param(LEVELS, 3, 2, id="the last"),
        pytest.param(LEVELS, 0, 2, id="none said: the last"),
        pytest.param(
            RunSettings(priority_levels=3, default_priority=2), 0, 1, id="none said: the default"
        ),
        pytest.param(RunSettings(), 9, 0, id="a version without priorities lets it pass"),
    ],
)
def test_priorities(settings: RunSettings, priority: int, expected: int) -> None:
    """1 goes first."""
    assert level(settings, priority) == expected


def test_a_priority_that_is_not_there() -> None:
    """The field, what was given, what is allowed."""
    with pytest.raises(InvalidArgumentError) as caught:
        level(LEVELS, 4)
    assert caught.value.violations[0].field == "parameters.priority"
    assert "4 given; allowed: 1 (first) to 3" in caught.value.violations[0].description


@pytest.mark.parametrize(
    ("of_version", "own", "expected"),
    [
        pytest.param(0.0, None, 0.0, id="none"),
        pytest.param(2.0, None, 2.0, id="the version's"),
        pytest.param(0.0, 1.0, 1.0, id="the request's"),
        pytest.param(2.0, 1.0, 1.0, id="the request's is shorter"),
        pytest.param(2.0, 3.0, 2.0, id="a request can only shorten it"),
    ],
)
def test_timeouts(of_version: float, own: float | None, expected: float) -> None:
    """The shorter of the two."""
    terms = request().terms
    QueueRules(timeout=of_version).apply(terms, RequestOptions(timeout=own))
    assert terms.timeout == expected


def test_a_request_that_is_too_large_is_refused_where_settings_say_so() -> None:
    """Otherwise it is computed in parts."""
    refusing = QueueRules.of(RunSettings(oversize_policy=OversizePolicy.REFUSE), 4)
    refusing.apply(request(4).terms, PLAIN)
    with pytest.raises(InvalidArgumentError, match="5 rows given; allowed: 4"):
        refusing.apply(request(5).terms, PLAIN)
    QueueRules.of(RunSettings(), 4).apply(request(5).terms, PLAIN)


@pytest.mark.parametrize(
    ("instances", "cpus", "shares"),
    [
        pytest.param(2, (), [(), ()], id="any"),
        pytest.param(2, (0, 1, 2, 3), [(0, 1), (2, 3)], id="evenly"),
        pytest.param(2, (4, 5, 6), [(4,), (5, 6)], id="nearly evenly"),
        pytest.param(3, (4, 5), [(4,), (5,), (4,)], id="fewer than instances"),
    ],
)
def test_cpus_are_shared_out(
    instances: int, cpus: tuple[int, ...], shares: list[tuple[int, ...]]
) -> None:
    """Each instance has its own as far as there are enough."""
    made = instance_plan.plan(instances, 1, cpus)
    assert [instance.cpus for instance in made] == shares


def test_a_session_is_shared_where_runs_compute_in_their_callers_threads() -> None:
    """Weights are in memory once for all instances of one thread."""
    assert instance_plan.can_share_session([Instance(1), Instance(1, (0,))])
    assert not instance_plan.can_share_session([Instance(2), Instance(2)])
