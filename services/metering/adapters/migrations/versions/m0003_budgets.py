"""Budgets and the leases on them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("uid", sa.String, primary_key=True),
        sa.Column("project", sa.String, nullable=False),
        sa.Column("budget", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("budgets_by_name", "budgets", ["project", "budget"], unique=True)
    op.create_table(
        "budget_accounts",
        sa.Column(
            "uid", sa.String, sa.ForeignKey("budgets.uid", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("window_start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("budget_accounts")
    op.drop_table("budgets")
