"""Column types that both engines keep alike: whole numbers of 64 bits, and texts in the order of their characters."""

import sqlalchemy as sa

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite's INTEGER has 64 bits
WORD = sa.String().with_variant(sa.String(collation="C"), "postgresql")
