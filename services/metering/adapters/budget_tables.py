"""The tables of budgets and their accounts."""

from sqlalchemy import Column, ForeignKey, Table

from services.metering.adapters.column_types import NUMBER, WORD
from services.metering.adapters.database import metadata

budgets = Table(
    "budgets",
    metadata,
    Column("uid", WORD, primary_key=True),
    Column("project", WORD, nullable=False),
    Column("budget", WORD, nullable=False),
    Column("body", WORD, nullable=False),
)

# One row for each budget and window. The body says who may still use how much of it.
budget_accounts = Table(
    "budget_accounts",
    metadata,
    Column("uid", WORD, ForeignKey("budgets.uid", ondelete="CASCADE"), primary_key=True),
    Column("window_start", NUMBER, primary_key=True, autoincrement=False),
    Column("body", WORD, nullable=False),
)
