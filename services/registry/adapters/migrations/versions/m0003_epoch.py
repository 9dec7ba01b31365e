"""The epoch: which process's turn it is to write; it grows each time that one takes over."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column(
        "log_bounds", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("log_bounds", "epoch")
