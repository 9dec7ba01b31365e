"""Resources, what they refer to, and the contents that versions have."""

import sqlalchemy as sa
from alembic import op

# Text whose order is that of its code points on every database, whatever the server's language.
_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "resources",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("parent", _NAME, nullable=False),
        sa.Column("sort_key", _NAME, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("resources_in_order", "resources", ["kind", "sort_key"], unique=True)
    op.create_index("resources_by_parent", "resources", ["kind", "parent", "sort_key"])
    op.create_index(
        "resources_uploading",
        "resources",
        ["state"],
        sqlite_where=sa.text("state = 'UPLOADING'"),
        postgresql_where=sa.text("state = 'UPLOADING'"),
    )
    op.create_table(
        "links",
        sa.Column(
            "source",
            _NAME,
            sa.ForeignKey("resources.name", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "target",
            _NAME,
            sa.ForeignKey("resources.name", ondelete="RESTRICT"),
            primary_key=True,
        ),
    )
    op.create_index("links_by_target", "links", ["target"])
    op.create_table(
        "blob_uses",
        sa.Column(
            "version",
            _NAME,
            sa.ForeignKey("resources.name", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("sha256", sa.String, primary_key=True),
        sa.Column("size_bytes", sa.BigInteger, primary_key=True),
    )
    op.create_index("blob_uses_by_blob", "blob_uses", ["sha256", "size_bytes"])


def downgrade() -> None:
    op.drop_table("blob_uses")
    op.drop_table("links")
    op.drop_table("resources")
