"""The tables of the SQL store, as the newest migration leaves them."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

# Text whose order is that of its code points on every database, whatever the server's language.
_Name = String().with_variant(String(collation="C"), "postgresql")

# One row for each resource. `body` is the whole record; the other columns are what queries need of it.
resources = Table(
    "resources",
    metadata,
    Column("name", _Name, primary_key=True),
    Column("kind", String, nullable=False),
    Column("parent", _Name, nullable=False),
    Column("sort_key", _Name, nullable=False),
    Column("state", String, nullable=False),
    Column("body", Text, nullable=False),
    Index("resources_in_order", "kind", "sort_key", unique=True),
    Index("resources_by_parent", "kind", "parent", "sort_key"),
    Index(
        "resources_uploading",
        "state",
        sqlite_where=text("state = 'UPLOADING'"),
        postgresql_where=text("state = 'UPLOADING'"),
    ),
)

# What refers to what: a last guard behind the rules, and the answer to "who uses this?".
links = Table(
    "links",
    metadata,
    Column("source", _Name, ForeignKey("resources.name", ondelete="CASCADE"), primary_key=True),
    Column("target", _Name, ForeignKey("resources.name", ondelete="RESTRICT"), primary_key=True),
    Index("links_by_target", "target"),
)

# Contents that versions have.
blob_uses = Table(
    "blob_uses",
    metadata,
    Column("version", _Name, ForeignKey("resources.name", ondelete="CASCADE"), primary_key=True),
    Column("sha256", String, primary_key=True),
    Column("size_bytes", BigInteger, primary_key=True),
    Index("blob_uses_by_blob", "sha256", "size_bytes"),
)

# The single row of the log's bounds: resuming works after `oldest` to `revision`. Who took over last holds `epoch`.
log_bounds = Table(
    "log_bounds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("oldest", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
)

# Which resources each commit changed.
changes = Table(
    "changes",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("name", _Name, nullable=False),
)
