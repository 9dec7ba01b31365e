"""Which folder the processes on a shared database share."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table("metering_folder", sa.Column("id", sa.String(), primary_key=True))


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_table("metering_folder")
