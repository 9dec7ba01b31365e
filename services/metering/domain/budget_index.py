"""Budgets by what they bind, and which projects' budgets changed since when."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from services.metering.domain.budget import Budget, BudgetName
from services.metering.domain.lease_exchange import Subject, SubjectBudgets

_MOST_NAMED = 1000  # projects; a holder that missed more asks about all again


class BudgetIndex:
    """All budgets. Finding those of a caller takes four look-ups, however many there are."""

    def __init__(self, revision: int) -> None:
        """Begin empty.

        Args:
            revision: higher than any before this process, so that holders of older ones ask again.
        """
        self._first = revision
        self.revision = revision
        self._by_uid: dict[str, Budget] = {}
        self._by_name: dict[str, Budget] = {}
        self._by_subject: dict[Subject, dict[str, Budget]] = {}
        self._ordered: list[str] | None = []  # names; None: to be sorted
        self._counts: dict[str, int] = {}  # budgets of a project
        self._changes: OrderedDict[str, int] = OrderedDict()  # the last revision of each project

    def __len__(self) -> int:
        return len(self._by_uid)

    def listed(self, parent: str, after: str, most: int) -> Sequence[Budget]:
        """Budgets whose names begin with `parent` and follow `after`, by name."""
        if self._ordered is None:
            self._ordered = sorted(self._by_name)
        first = bisect_right(self._ordered, max(after, parent))
        names = self._ordered[first : first + most]
        return [self._by_name[name] for name in names if name.startswith(parent)]

    def named(self, name: BudgetName) -> Budget | None:
        """The budget of that name."""
        return self._by_name.get(str(name))

    def get(self, uid: str) -> Budget | None:
        """The budget of that uid."""
        return self._by_uid.get(uid)

    def put(self, budget: Budget, revision: int | None = None) -> None:
        """Add a budget, or replace it by its uid.

        Args:
            budget: as it is now.
            revision: of the change, where the store numbers them, and not lower than any before; None: the next one.
        """
        project = budget.name.project
        if budget.uid not in self._by_uid:
            self._counts[project] = self._counts.get(project, 0) + 1
            self._ordered = None
        self._by_uid[budget.uid] = budget
        self._by_name[str(budget.name)] = budget
        self._by_subject.setdefault(_bound(budget), {})[budget.uid] = budget
        self._note(project, revision)

    def remove(self, budget: Budget, revision: int | None = None) -> None:
        """It binds nobody any more."""
        project, bound = budget.name.project, _bound(budget)
        del self._by_uid[budget.uid], self._by_name[str(budget.name)]
        self._ordered = None
        del self._by_subject[bound][budget.uid]
        if not self._by_subject[bound]:
            del self._by_subject[bound]
        self._counts[project] -= 1
        if not self._counts[project]:
            del self._counts[project]
        self._note(project, revision)

    def of_subject(self, subject: Subject) -> SubjectBudgets:
        """The budgets that bind a caller."""
        project = subject.project
        if project not in self._counts:
            return SubjectBudgets((), project_has_none=True)
        keys = dict.fromkeys(("", subject.key))
        endpoints = dict.fromkeys(("", subject.endpoint))
        found = [
            budget
            for key in keys
            for endpoint in endpoints
            for budget in self._by_subject.get(Subject(project, key, endpoint), {}).values()
        ]
        return SubjectBudgets(tuple(found), project_has_none=False)

    def changed_since(self, revision: int) -> Sequence[str] | None:
        """Projects whose budgets changed after that; None: too many, or nobody knows any more."""
        if not self._first <= revision <= self.revision:
            return None
        found: list[str] = []
        for project, changed in reversed(self._changes.items()):
            if changed <= revision:
                break
            if len(found) == _MOST_NAMED:
                return None
            found.append(project)
        return found

    def _note(self, project: str, revision: int | None) -> None:
        self.revision = self.revision + 1 if revision is None else max(self.revision, revision)
        self._changes[project] = self.revision
        self._changes.move_to_end(project)


def _bound(budget: Budget) -> Subject:
    return Subject(budget.name.project, budget.key, budget.endpoint)
