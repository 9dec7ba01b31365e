"""Projects, API keys and the keys that sign them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Postgres would order texts by a language otherwise.
_WORD = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", _WORD, primary_key=True),
        sa.Column("body", _TEXT, nullable=False),
    )
    op.create_table(
        "signing_keys",
        sa.Column("kid", _WORD, primary_key=True),
        sa.Column("create_us", sa.BigInteger, nullable=False),
        sa.Column("retire_us", sa.BigInteger),
        sa.Column("body", _TEXT, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", _WORD, primary_key=True),
        sa.Column("project", _WORD, sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("kid", _WORD, sa.ForeignKey("signing_keys.kid"), nullable=False),
        sa.Column("role", _WORD, nullable=False),
        sa.Column("sort_key", _WORD, nullable=False),
        sa.Column("expire_us", sa.BigInteger, nullable=False),
        sa.Column("revoke_us", sa.BigInteger),
        sa.Column("in_policy", sa.Boolean, nullable=False),
        sa.Column("body", _TEXT, nullable=False),
    )
    op.create_index("api_keys_in_order", "api_keys", ["sort_key"], unique=True)
    op.create_index("api_keys_of_project", "api_keys", ["project", "sort_key"])
    op.create_index("api_keys_in_policy", "api_keys", ["in_policy", "sort_key"])
    if op.get_bind().dialect.name == "postgresql":
        _shared()


def _shared() -> None:
    """What processes that share the database tell each other: what changed last under which revision."""
    op.execute("CREATE SEQUENCE metering_revision START 2")
    op.execute("CREATE SEQUENCE metering_process")
    op.create_table(
        "metering_changes",
        sa.Column("topic", _WORD, primary_key=True),
        sa.Column("name", _WORD, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("metering_changes_in_order", "metering_changes", ["revision"])
    op.create_table(
        "metering_writers",  # each process's last write, so that one whose answer was lost is found
        sa.Column("process", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("nonce", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_table("metering_writers")
        op.drop_table("metering_changes")
        op.execute("DROP SEQUENCE metering_revision")
        op.execute("DROP SEQUENCE metering_process")
    op.drop_table("api_keys")
    op.drop_table("signing_keys")
    op.drop_table("projects")
