"""Rules of limits and projects."""

import math

import pytest

from services.metering.domain.limits import Limits, check_limits
from services.metering.domain.project import ProjectInput, changed_project, new_project
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import ProjectName
from services.rpc.violations import Violations
from tests.unit.metering.identities import NOW, SLOW, project


@pytest.mark.parametrize(
    ("limits", "fields"),
    [
        pytest.param(Limits(), [], id="none"),
        pytest.param(Limits(requests_per_second=0.001), [], id="one in 1000 s"),
        pytest.param(Limits(requests_per_second=1e6, burst=10**6), [], id="the largest"),
        pytest.param(Limits(concurrent_requests=1, shadow=True), [], id="shadow"),
        pytest.param(Limits(requests_per_second=-1), ["requests_per_second"], id="negative rate"),
        pytest.param(
            Limits(requests_per_second=math.nan), ["requests_per_second"], id="not a number"
        ),
        pytest.param(
            Limits(requests_per_second=math.inf), ["requests_per_second"], id="infinite rate"
        ),
        pytest.param(Limits(burst=5), ["burst"], id="burst without rate"),
        pytest.param(
            Limits(requests_per_second=1, burst=10**6 + 1, concurrent_requests=-1),
            ["burst", "concurrent_requests"],
            id="two at once",
        ),
    ],
)
def test_limits(limits: Limits, fields: list[str]) -> None:
    """Only what can be kept is taken."""
    violations = Violations()
    check_limits(violations, "l", limits)
    assert [found.field for found in violations.found] == [f"l.{field}" for field in fields]


def test_a_project_as_asked_for() -> None:
    """Tags come in the order of their keys."""
    given = ProjectInput(display_name="P", tags={"b": "2", "a": "1"}, limits=SLOW, disabled=True)
    made = new_project(ProjectName("p"), given, NOW)
    assert made == project(display_name="P", tags={"a": "1", "b": "2"}, limits=SLOW, disabled=True)
    assert list(made.tags) == ["a", "b"]


def test_changes_of_a_project_follow_the_mask() -> None:
    """Empty: all of them."""
    given = ProjectInput(disabled=True)
    assert changed_project(project(limits=SLOW), given, ["disabled"]) == project(
        limits=SLOW, disabled=True
    )
    assert changed_project(project(limits=SLOW), given, []) == project(disabled=True)
    with pytest.raises(InvalidArgumentError):
        changed_project(project(), given, ["name"])
