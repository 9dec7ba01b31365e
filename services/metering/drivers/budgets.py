"""What people do with budgets."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from services.metering.domain.budget import (
    Budget,
    BudgetInput,
    BudgetName,
    changed,
    checked,
    fields_of,
)
from services.metering.domain.etag import check_etag
from services.metering.domain.lease_book import Standing
from services.metering.drivers.lease_desk import LeaseDesk, moment
from services.metering.ports.project_lookup import ProjectLookup
from services.rpc.completion import to_completion
from services.rpc.errors import AlreadyExistsError, NotFoundError
from services.rpc.names import ProjectName
from services.rpc.page import Page, PageRequest, cut

_UID_BYTES = 8


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget and where it stands."""

    budget: Budget
    standing: Standing


class Budgets:
    """Creates, reads, changes and deletes budgets. Changes run one after another."""

    def __init__(self, desk: LeaseDesk, projects: ProjectLookup) -> None:
        self._desk = desk
        self._projects = projects

    async def create(self, name: BudgetName, given: BudgetInput) -> BudgetState:
        """A new budget; its first window has begun already, with nothing used. NotFoundError: no such project."""
        wanted = checked(given)
        await self._projects.get(ProjectName(name.project))
        async with self._desk.writing:
            return await self._create(name, wanted)

    async def _create(self, name: BudgetName, given: BudgetInput) -> BudgetState:
        if self._desk.book.budgets.named(name) is not None:
            raise AlreadyExistsError(f"{name} exists already", metadata={"resource": str(name)})
        assert given.unit is not None
        assert given.amount is not None
        assert given.window is not None
        budget = Budget(
            uid=secrets.token_hex(_UID_BYTES),
            name=name,
            unit=given.unit,
            amount=given.amount,
            window=given.window,
            key=given.key,
            endpoint=given.endpoint,
            shadow=given.shadow,
            stop_streams=given.stop_streams,
            alert_percents=tuple(given.alert_percents),
            create_time=self._desk.clock.now(),
        )
        return await self._put(budget)

    async def _put(self, budget: Budget) -> BudgetState:
        await to_completion(self._keep(budget))
        return self._state(budget)

    async def _keep(self, budget: Budget) -> None:
        """In the store and in the book, or in neither, also if the caller goes meanwhile."""
        await self._desk.store.put(budget)
        self._desk.book.budgets.put(budget)

    def get(self, name: BudgetName) -> BudgetState:
        """NotFoundError if there is none."""
        return self._state(self._found(name))

    def list(self, project: str, wanted: PageRequest) -> Page[BudgetState]:
        """Those of a project, or of all (`-`), by name."""
        parent = "projects/" if project == "-" else f"projects/{project}/"
        found = self._desk.book.budgets.listed(parent, wanted.after, wanted.size + 1)
        states = [self._state(budget) for budget in found]
        return cut(wanted, states, lambda state: str(state.budget.name))

    async def update(
        self, name: BudgetName, given: BudgetInput, paths: Sequence[str], etag: str, *, create: bool
    ) -> BudgetState:
        """Change what may be changed, from now on and in the running window; `create` it if it is missing."""
        fields = fields_of(paths)
        if create and self._desk.book.budgets.named(name) is None:
            return await self.create(name, given)
        async with self._desk.writing:
            budget = self._found(name)
            check_etag(name, budget, etag)
            return await self._put(changed(budget, _completed(given, budget, fields), fields))

    async def delete(self, name: BudgetName, etag: str) -> None:
        """Its calls go on without it; what it counted is forgotten."""
        async with self._desk.writing:
            budget = self._found(name)
            check_etag(name, budget, etag)
            await to_completion(self._remove(budget))

    async def _remove(self, budget: Budget) -> None:
        await self._desk.store.remove(budget.uid)
        self._desk.book.budgets.remove(budget)
        self._desk.book.drop(budget.uid)

    def _found(self, name: BudgetName) -> Budget:
        budget = self._desk.book.budgets.named(name)
        if budget is None:
            raise NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})
        return budget

    def _state(self, budget: Budget) -> BudgetState:
        return BudgetState(budget, self._desk.book.standing(budget, moment(self._desk.clock)))


def _completed(given: BudgetInput, budget: Budget, fields: Sequence[str]) -> BudgetInput:
    """What was given, checked as a whole: fields that are not meant are the stored ones."""
    whole = {
        field: getattr(given if field in fields else budget, field)
        for field in ("window", "key", "endpoint", "shadow", "stop_streams", "alert_percents")
    }
    amount = given if "amount" in fields else budget
    return checked(BudgetInput(unit=amount.unit, amount=amount.amount, **whole))
