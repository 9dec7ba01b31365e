"""Tables of projects, API keys and signing keys. What is asked for is a column, the rest is in `body`."""

import sqlalchemy as sa

from services.metering.adapters.database import metadata

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)

signing_keys = sa.Table(
    "signing_keys",
    metadata,
    sa.Column("kid", sa.String, primary_key=True),
    sa.Column("create_us", sa.BigInteger, nullable=False),
    sa.Column("retire_us", sa.BigInteger),
    sa.Column("body", sa.Text, nullable=False),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.String, primary_key=True),  # the token's jti
    sa.Column("project", sa.String, sa.ForeignKey("projects.id"), nullable=False),
    sa.Column("kid", sa.String, sa.ForeignKey("signing_keys.kid"), nullable=False),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("sort_key", sa.String, nullable=False),
    sa.Column("expire_us", sa.BigInteger, nullable=False),
    sa.Column("revoke_us", sa.BigInteger),
    sa.Column("in_policy", sa.Boolean, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("api_keys_in_order", "sort_key", unique=True),
    sa.Index("api_keys_of_project", "project", "sort_key"),
    sa.Index("api_keys_in_policy", "in_policy", "sort_key"),
)
