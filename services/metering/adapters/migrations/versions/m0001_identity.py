"""Projects, API keys and the keys that sign them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "signing_keys",
        sa.Column("kid", sa.String, primary_key=True),
        sa.Column("create_us", sa.BigInteger, nullable=False),
        sa.Column("retire_us", sa.BigInteger),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("project", sa.String, sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("kid", sa.String, sa.ForeignKey("signing_keys.kid"), nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("sort_key", sa.String, nullable=False),
        sa.Column("expire_us", sa.BigInteger, nullable=False),
        sa.Column("revoke_us", sa.BigInteger),
        sa.Column("in_policy", sa.Boolean, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("api_keys_in_order", "api_keys", ["sort_key"], unique=True)
    op.create_index("api_keys_of_project", "api_keys", ["project", "sort_key"])
    op.create_index("api_keys_in_policy", "api_keys", ["in_policy", "sort_key"])


def downgrade() -> None:
    op.drop_table("api_keys")
    op.drop_table("signing_keys")
    op.drop_table("projects")
