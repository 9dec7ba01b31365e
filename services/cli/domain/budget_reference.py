"""What people type for budgets: `research/daily`, or `daily` of the project `default`."""

from dataclasses import dataclass

from services.cli.domain.account_reference import DEFAULT_PROJECT
from services.cli.domain.exit_code import UsageError
from services.rpc.names import check_id


@dataclass(frozen=True, slots=True)
class BudgetName:
    """`projects/{project}/budgets/{budget}`."""

    project: str
    budget: str

    def __str__(self) -> str:
        return f"projects/{self.project}/budgets/{self.budget}"


def parse_budget(text: str) -> BudgetName:
    """`research/daily`, `projects/research/budgets/daily`, or `daily` of the project `default`."""
    parts = text.split("/")
    if len(parts) == 4 and parts[0] == "projects" and parts[2] == "budgets":
        parts = [parts[1], parts[3]]
    if len(parts) == 1:
        parts = [DEFAULT_PROJECT, *parts]
    if len(parts) != 2:
        raise UsageError(f"{text!r} names no budget; allowed: PROJECT/BUDGET, as budget list shows")
    return BudgetName(check_id("project", parts[0]), check_id("budget", parts[1]))
