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
from services.metering.domain.lease_book import LeaseBook, Standing
from services.metering.drivers.desk import Decision, Desk, moment
from services.metering.ports.project_lookup import ProjectLookup
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

    def __init__(self, desk: Desk, projects: ProjectLookup) -> None:
        self._desk = desk
        self._projects = projects

    async def create(self, name: BudgetName, given: BudgetInput) -> BudgetState:
        """A new budget; its first window has begun already, with nothing used. NotFoundError: no such project."""
        wanted = checked(given)
        await self._projects.get(ProjectName(name.project))
        assert wanted.unit is not None
        assert wanted.amount is not None
        assert wanted.window is not None
        budget = Budget(
            uid=secrets.token_hex(_UID_BYTES),
            name=name,
            unit=wanted.unit,
            amount=wanted.amount,
            window=wanted.window,
            key=wanted.key,
            endpoint=wanted.endpoint,
            shadow=wanted.shadow,
            stop_streams=wanted.stop_streams,
            alert_percents=tuple(wanted.alert_percents),
            create_time=self._desk.clock.now(),
        )

        def decide(book: LeaseBook) -> Decision:
            if book.budgets.named(name) is not None:
                raise AlreadyExistsError(f"{name} exists already", metadata={"resource": str(name)})
            return Decision(budget)

        return self._state(await self._desk.change(decide))

    async def get(self, name: BudgetName) -> BudgetState:
        """NotFoundError if there is none."""
        await self._desk.refresh()
        return self._state(_found(self._desk.book, name))

    async def list(self, project: str, wanted: PageRequest) -> Page[BudgetState]:
        """Those of a project, or of all (`-`), by name."""
        await self._desk.refresh()
        parent = "projects/" if project == "-" else f"projects/{project}/"
        found = self._desk.book.budgets.listed(parent, wanted.after, wanted.size + 1)
        states = [self._state(budget) for budget in found]
        return cut(wanted, states, lambda state: str(state.budget.name))

    async def update(
        self, name: BudgetName, given: BudgetInput, paths: Sequence[str], etag: str, *, create: bool
    ) -> BudgetState:
        """Change what may be changed, from now on and in the running window; `create` it if it is missing."""
        fields = fields_of(paths)
        if create:
            await self._desk.refresh()
            if self._desk.book.budgets.named(name) is None:
                return await self.create(name, given)

        def decide(book: LeaseBook) -> Decision:
            budget = _found(book, name)
            check_etag(name, budget, etag)
            return Decision(changed(budget, _completed(given, budget, fields), fields))

        return self._state(await self._desk.change(decide))

    async def delete(self, name: BudgetName, etag: str) -> None:
        """Its calls go on without it; what it counted is forgotten."""

        def decide(book: LeaseBook) -> Decision:
            budget = _found(book, name)
            check_etag(name, budget, etag)
            return Decision(budget, is_gone=True)

        await self._desk.change(decide)

    def _state(self, budget: Budget) -> BudgetState:
        return BudgetState(budget, self._desk.book.standing(budget, moment(self._desk.clock)))


def _found(book: LeaseBook, name: BudgetName) -> Budget:
    budget = book.budgets.named(name)
    if budget is None:
        raise NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})
    return budget


def _completed(given: BudgetInput, budget: Budget, fields: Sequence[str]) -> BudgetInput:
    """What was given, checked as a whole: fields that are not meant are the stored ones."""
    whole = {
        field: getattr(given if field in fields else budget, field)
        for field in ("window", "key", "endpoint", "shadow", "stop_streams", "alert_percents")
    }
    amount = given if "amount" in fields else budget
    return checked(BudgetInput(unit=amount.unit, amount=amount.amount, **whole))
