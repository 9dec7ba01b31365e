"""The log of changes that watches resume from."""

import sqlalchemy as sa
from alembic import op

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")  # as in 0001

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "log_bounds",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("oldest", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "changes",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("name", _NAME, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("changes")
    op.drop_table("log_bounds")
