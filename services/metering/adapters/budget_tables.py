"""The tables of budgets and their accounts."""

from sqlalchemy import BigInteger, Column, ForeignKey, String, Table, Text

from services.metering.adapters.database import metadata

budgets = Table(
    "budgets",
    metadata,
    Column("uid", String, primary_key=True),
    Column("project", String, nullable=False),
    Column("budget", String, nullable=False),
    Column("body", Text, nullable=False),
)

# One row for each budget and window. The body says who may still use how much of it.
budget_accounts = Table(
    "budget_accounts",
    metadata,
    Column("uid", String, ForeignKey("budgets.uid", ondelete="CASCADE"), primary_key=True),
    Column("window_start", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
