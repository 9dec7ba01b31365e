"""Tables of projects, API keys and signing keys. What is asked for is a column, the rest is in `body`."""

import sqlalchemy as sa

from services.metering.adapters.column_types import NUMBER, WORD
from services.metering.adapters.database import metadata

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", WORD, primary_key=True),
    sa.Column("body", WORD, nullable=False),
)

signing_keys = sa.Table(
    "signing_keys",
    metadata,
    sa.Column("kid", WORD, primary_key=True),
    sa.Column("create_us", NUMBER, nullable=False),
    sa.Column("retire_us", NUMBER),
    sa.Column("body", WORD, nullable=False),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", WORD, primary_key=True),  # the token's jti
    sa.Column("project", WORD, sa.ForeignKey("projects.id"), nullable=False),
    sa.Column("kid", WORD, sa.ForeignKey("signing_keys.kid"), nullable=False),
    sa.Column("role", WORD, nullable=False),
    sa.Column("sort_key", WORD, nullable=False),
    sa.Column("expire_us", NUMBER, nullable=False),
    sa.Column("revoke_us", NUMBER),
    sa.Column("in_policy", sa.Boolean, nullable=False),
    sa.Column("body", WORD, nullable=False),
    sa.Index("api_keys_in_order", "sort_key", unique=True),
    sa.Index("api_keys_of_project", "project", "sort_key"),
    sa.Index("api_keys_in_policy", "in_policy", "sort_key"),
)
