"""Budgets and the leases on them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_WORD = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("uid", _WORD, primary_key=True),
        sa.Column("project", _WORD, nullable=False),
        sa.Column("budget", _WORD, nullable=False),
        sa.Column("body", _TEXT, nullable=False),
    )
    op.create_index("budgets_by_name", "budgets", ["project", "budget"], unique=True)
    op.create_table(
        "budget_accounts",
        sa.Column("uid", _WORD, sa.ForeignKey("budgets.uid", ondelete="CASCADE"), primary_key=True),
        sa.Column("window_start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("body", _TEXT, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        _shared()


def _shared() -> None:
    """By what a process finds what others wrote, and which holders they answered."""
    revision = sa.Column("revision", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("budget_accounts", revision)
    op.create_index("budget_accounts_in_order", "budget_accounts", ["revision"])
    op.create_table(
        "lease_holders",
        sa.Column("holder", _WORD, primary_key=True),
        sa.Column("sequence", sa.Numeric(20, 0), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("lease_holders_in_order", "lease_holders", ["revision"])


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_table("lease_holders")
    op.drop_table("budget_accounts")
    op.drop_table("budgets")
