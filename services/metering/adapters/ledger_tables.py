"""Tables of usage, the ledger, prices and reports, as the newest migration leaves them."""

from typing import Any

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    UniqueConstraint,
    text,
)

from services.metering.adapters.column_types import NUMBER, WORD
from services.metering.adapters.database import metadata
from services.metering.domain.sums import SUMS
from services.metering.domain.usage import COLUMNS


def _number(name: str) -> Column[int]:
    return Column(name, NUMBER, nullable=False)


def _only(condition: str) -> dict[str, Any]:
    """An index of rows of which this holds."""
    return {f"{engine}_where": text(condition) for engine in ("sqlite", "postgresql")}


# Outboxes of workers. `next_sequence` is the row that is wanted next.
sources = Table(
    "usage_sources",
    metadata,
    Column("id", NUMBER, primary_key=True),
    Column("source", WORD, nullable=False, unique=True),
    Column("worker", WORD, nullable=False),
    Column("pool", WORD, nullable=False),
    _number("next_sequence"),
    _number("update_us"),
)

# What requests have in common.
subjects = Table(
    "usage_subjects",
    metadata,
    Column("id", NUMBER, primary_key=True),
    *(
        Column(name, WORD, nullable=False)
        for name in ("project", "key", "endpoint", "model", "version", "digest")
    ),
    _number("kind"),
    Column("pool", WORD, nullable=False),
    UniqueConstraint(
        "project",
        "key",
        "endpoint",
        "model",
        "version",
        "digest",
        "kind",
        "pool",
        name="usage_subjects_once",
    ),
)

# One row for each reported attempt, as it was reported. `slot` and `odd` say how it is found: see `sql_attempts`.
rows = Table(
    "usage_rows",
    metadata,
    Column("id", NUMBER, primary_key=True),
    _number("entry"),
    _number("subject"),
    Column("request_id", LargeBinary, nullable=False),
    *(_number(name) for name in COLUMNS),
    _number("slot"),
    _number("odd"),
    Index("usage_rows_plain", "slot", "request_id", **_only("odd = 0")),
    Index("usage_rows_odd", "request_id", **_only("odd = 1")),
)

# What is known of some rows' texts.
telemetry = Table(
    "usage_telemetry",
    metadata,
    Column("row", NUMBER, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    _number("input_characters"),
    _number("output_characters"),
    Column("scores", WORD, nullable=False),
)

# Rows that gave way to another attempt of their request.
superseded = Table(
    "usage_superseded",
    metadata,
    Column("row", NUMBER, primary_key=True),
    _number("winner"),
    _number("attempts"),
    _number("entry"),
    Index("usage_superseded_by_winner", "winner"),
    Index("usage_superseded_by_entry", "entry"),
)

accounts = Table(
    "ledger_accounts",
    metadata,
    Column("id", NUMBER, primary_key=True),
    Column("name", WORD, nullable=False, unique=True),
)

# Entries: append-only, held by triggers.
entries = Table(
    "ledger_entries",
    metadata,
    Column("number", NUMBER, primary_key=True),
    _number("kind"),
    _number("create_us"),
    Column("reason", WORD, nullable=False),
    _number("corrects"),
    Column("request_key", WORD, unique=True),
    *(
        _number(name)
        for name in ("source", "first_sequence", "first_row", "row_count", "last_price", "charged")
    ),
    Column("rows_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Index("ledger_entries_by_time", "create_us"),
    Index("ledger_entries_by_row", "first_row", **_only("row_count > 0")),
)

# Postings: append-only, held by triggers.
postings = Table(
    "ledger_postings",
    metadata,
    Column("id", NUMBER, primary_key=True),
    Column("entry", NUMBER, ForeignKey("ledger_entries.number"), nullable=False),
    Column("account", NUMBER, ForeignKey("ledger_accounts.id"), nullable=False),
    *(_number(name) for name in ("amount", "quantity", "unit", "price", "subject")),
    Index("ledger_postings_by_entry", "entry"),
    Index("ledger_postings_by_account", "account", "entry"),
)

# Running sums of the postings, in 10^-6 (`high`) and 10^-12 (`low`) of the currency: together beyond 64 bits.
balances = Table(
    "ledger_balances",
    metadata,
    Column("account", NUMBER, ForeignKey("ledger_accounts.id"), primary_key=True),
    _number("high"),
    _number("low"),
)

# Prices: append-only, held by triggers.
prices = Table(
    "prices",
    metadata,
    Column("id", NUMBER, primary_key=True),
    _number("unit"),
    _number("amount"),
    Column("project", WORD, nullable=False),
    Column("model", WORD, nullable=False),
    Column("version", WORD, nullable=False),
    _number("valid_from_ns"),
    _number("create_us"),
)

machine_prices = Table(
    "machine_prices",
    metadata,
    Column("id", NUMBER, primary_key=True),
    Column("pool", WORD, nullable=False),
    _number("hourly_amount"),
    _number("machines"),
    _number("valid_from_ns"),
    _number("create_us"),
)

# Sums of a subject's requests by the hour (grain 1), day (2) and month (3) in which they began.
# `start`: hours since 1970.
# Those of families are of all keys and digests together: most reports don't ask for keys, and there are many.
rollups, family_rollups = (
    Table(
        name,
        metadata,
        Column("grain", NUMBER, primary_key=True),
        Column("start", NUMBER, primary_key=True),
        Column("subject", NUMBER, primary_key=True),
        *(_number(name) for name in SUMS),
        sqlite_with_rowid=False,
    )
    for name in ("usage_rollups", "usage_family_rollups")
)

# What a project was charged for requests of a month: `month` is its first hour.
spending = Table(
    "spending",
    metadata,
    Column("project", WORD, primary_key=True),
    Column("month", NUMBER, primary_key=True),
    Column("amount", NUMBER, nullable=False),
    sqlite_with_rowid=False,
)

spending_alerts = Table(
    "spending_alerts",
    metadata,
    Column("project", WORD, primary_key=True),
    Column("alert", WORD, primary_key=True),
    _number("monthly_amount"),
    Column("percents", WORD, nullable=False),
    Column("webhook", WORD, nullable=False),
    _number("create_us"),
)

spending_notices = Table(
    "spending_notices",
    metadata,
    Column("id", NUMBER, primary_key=True),
    Column("project", WORD, nullable=False),
    Column("alert", WORD, nullable=False),
    _number("month"),
    _number("percent"),
    _number("spent"),
    _number("monthly_amount"),
    Column("webhook", WORD, nullable=False),
    _number("create_us"),
    Column("deliver_us", NUMBER),
    UniqueConstraint("project", "alert", "month", "percent", name="spending_notices_once"),
    Index(
        "spending_notices_undelivered",
        "id",
        **_only("deliver_us IS NULL AND webhook <> ''"),
    ),
)

# Up to which entry request rows were dropped: rows may be deleted only after it was noted here.
retention = Table(
    "usage_retention",
    metadata,
    Column("id", NUMBER, primary_key=True),
    _number("upto_entry"),
    _number("dropped_rows"),
    _number("create_us"),
)
