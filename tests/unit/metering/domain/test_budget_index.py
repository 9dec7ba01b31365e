"""Finding budgets by what they bind."""

from datetime import UTC, datetime

from services.metering.domain.budget import Budget, BudgetName, BudgetUnit
from services.metering.domain.budget_index import BudgetIndex
from services.metering.domain.lease_exchange import Subject
from services.rpc.calendar_window import WindowKind


def budget(project: str, name: str, key: str = "", endpoint: str = "") -> Budget:
    return Budget(
        uid=f"{project}-{name}",
        name=BudgetName(project, name),
        unit=BudgetUnit.TOKENS,
        amount=1,
        window=WindowKind.DAY,
        key=key,
        endpoint=endpoint,
        create_time=datetime(2030, 1, 1, tzinfo=UTC),
    )


def index(*budgets: Budget) -> BudgetIndex:
    found = BudgetIndex(100)
    for each in budgets:
        found.put(each)
    return found


def test_a_caller_is_bound_by_budgets_of_all_of_its_key_and_of_its_endpoint() -> None:
    """Those of other keys, endpoints and projects don't bind it."""
    found = index(
        budget("p", "all"),
        budget("p", "k", key="k"),
        budget("p", "e", endpoint="e"),
        budget("p", "ke", key="k", endpoint="e"),
        budget("p", "other", key="x"),
        budget("q", "all"),
    ).of_subject(Subject("p", "k", "e"))
    assert sorted(each.name.budget for each in found.budgets) == ["all", "e", "k", "ke"]
    assert not found.project_has_none


def test_a_project_without_budgets_is_told_apart_from_a_caller_without_any() -> None:
    """Only where the project has none at all need nobody ask for its other callers."""
    found = index(budget("p", "k", key="k"))
    assert found.of_subject(Subject("q", "k", "e")).project_has_none
    other = found.of_subject(Subject("p", "x", "e"))
    assert (other.budgets, other.project_has_none) == ((), False)
    found.remove(budget("p", "k", key="k"))
    assert found.of_subject(Subject("p", "k", "e")).project_has_none


def test_changes_are_told_by_project_since_a_revision() -> None:
    """Each project once, the newest change first; who knows nothing of this process is told to ask again."""
    found = index(budget("p", "a"), budget("q", "a"), budget("p", "b"))
    assert found.changed_since(100) == ["p", "q"]
    assert found.changed_since(102) == ["p"]
    assert found.changed_since(103) == []
    assert found.changed_since(99) is None
    assert found.changed_since(104) is None


def test_too_many_changes_are_not_named() -> None:
    """A holder that missed more than a thousand asks about everything again."""
    found = index(*(budget(f"p{number}", "a") for number in range(1001)))
    assert found.changed_since(100) is None
    named = found.changed_since(101)
    assert named is not None
    assert len(named) == 1000


def test_listings_follow_the_order_of_names() -> None:
    """Also where ids of projects begin alike."""
    found = index(budget("a", "x"), budget("a-b", "x"), budget("a.b", "y"), budget("b", "x"))
    everything = found.listed("projects/", "", 10)
    assert [str(each.name) for each in everything] == sorted(str(e.name) for e in everything)
    assert [str(e.name) for e in found.listed("projects/a/", "", 10)] == ["projects/a/budgets/x"]
    assert found.listed("projects/", str(everything[1].name), 1) == [everything[2]]
    assert len(found) == 4


def test_revisions_may_be_the_stores() -> None:
    """1. Of changes that the store numbers the newest is the index's; 2. what is told again is no news."""
    found = BudgetIndex(7)
    found.put(budget("p1", "a"), 9)
    found.put(budget("p2", "b"), 12)
    assert found.revision == 12
    assert found.changed_since(9) == ["p2"]
    found.put(budget("p2", "b"), 12)
    assert (found.revision, found.changed_since(12)) == (12, [])
    assert found.changed_since(13) is None
