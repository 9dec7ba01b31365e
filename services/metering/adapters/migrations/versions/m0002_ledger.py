"""Usage, the ledger and prices."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite's INTEGER has 64 bits
# Postgres would order texts by a language otherwise.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNTS = (
    "part",
    "attempt",
    "outcome",
    "start_ns",
    "duration_ns",
    "queue_ns",
    "compute_ns",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "rows",
    "request_bytes",
    "response_bytes",
    "preemptions",
    "from_cache",
    "slot",
    "odd",
)
_SUMS = (
    "requests",
    "ok",
    "failed",
    "cancelled",
    "deadline",
    "aborted",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "rows",
    "request_bytes",
    "response_bytes",
    "from_cache",
    "preemptions",
    "compute_ns",
    "queue_ns",
    "duration_ns",
    "lost_attempts",
    "lost_compute_ns",
    "charged",
)
_FOREVER = (
    "usage_subjects",
    "usage_superseded",
    "ledger_accounts",
    "ledger_entries",
    "ledger_postings",
    "prices",
    "machine_prices",
    "usage_retention",
)


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, _NUMBER, nullable=False) for name in names]


def _words(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _TEXT, nullable=False) for name in names]


def _id(name: str = "id") -> sa.Column[int]:
    return sa.Column(name, _NUMBER, primary_key=True)


def _blob(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _table(name: str, *parts: sa.schema.SchemaItem, with_rowid: bool = True) -> None:
    op.create_table(name, *parts, sqlite_with_rowid=with_rowid)


def _only(condition: str) -> dict[str, Any]:
    """An index of rows of which this holds."""
    return {f"{engine}_where": sa.text(condition) for engine in ("sqlite", "postgresql")}


def _whole(*names: str) -> list[sa.CheckConstraint]:
    """A sum that grows out of 64 bits is an error, and never a rounded number. Postgres sees to that by itself."""
    condition = " AND ".join(f"typeof({name}) = 'integer'" for name in names)
    return [sa.CheckConstraint(condition)] if _is_sqlite() else []


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _usage() -> None:
    _table(
        "usage_sources",
        _id(),
        sa.Column("source", _TEXT, nullable=False, unique=True),
        *_words("worker", "pool"),
        *_numbers("next_sequence", "update_us"),
    )
    subject = ("project", "key", "endpoint", "model", "version", "digest")
    _table(
        "usage_subjects",
        _id(),
        *_words(*subject),
        *_numbers("kind"),
        *_words("pool"),
        sa.UniqueConstraint(*subject, "kind", "pool", name="usage_subjects_once"),
    )
    _table(
        "usage_rows", _id(), *_numbers("entry", "subject"), _blob("request_id"), *_numbers(*_COUNTS)
    )
    op.create_index("usage_rows_plain", "usage_rows", ["slot", "request_id"], **_only("odd = 0"))
    op.create_index("usage_rows_odd", "usage_rows", ["request_id"], **_only("odd = 1"))
    _table(
        "usage_telemetry",
        _id("row"),
        _blob("fingerprint"),
        *_numbers("input_characters", "output_characters"),
        *_words("scores"),
    )
    _table("usage_superseded", _id("row"), *_numbers("winner", "attempts", "entry"))
    op.create_index("usage_superseded_by_winner", "usage_superseded", ["winner"])
    op.create_index("usage_superseded_by_entry", "usage_superseded", ["entry"])
    _table("usage_retention", _id(), *_numbers("upto_entry", "dropped_rows", "create_us"))
    for table in ("usage_rollups", "usage_family_rollups"):
        _table(
            table,
            *(
                sa.Column(name, _NUMBER, primary_key=True, autoincrement=False)
                for name in ("grain", "start", "subject")
            ),
            *_numbers(*_SUMS),
            *_whole("charged", "compute_ns", "queue_ns", "duration_ns", "lost_compute_ns"),
            with_rowid=False,
        )


def _ledger() -> None:
    _table("ledger_accounts", _id(), sa.Column("name", _TEXT, nullable=False, unique=True))
    _table(
        "ledger_entries",
        _id("number"),
        *_numbers("kind", "create_us"),
        *_words("reason"),
        *_numbers("corrects"),
        sa.Column("request_key", _TEXT, unique=True),
        *_numbers("source", "first_sequence", "first_row", "row_count", "last_price", "charged"),
        _blob("rows_hash"),
        _blob("hash"),
    )
    op.create_index(
        "ledger_entries_by_row",
        "ledger_entries",
        ["first_row"],
        **_only("row_count > 0"),
    )
    op.create_index("ledger_entries_by_time", "ledger_entries", ["create_us"])
    _table(
        "ledger_postings",
        _id(),
        sa.Column("entry", _NUMBER, sa.ForeignKey("ledger_entries.number"), nullable=False),
        sa.Column("account", _NUMBER, sa.ForeignKey("ledger_accounts.id"), nullable=False),
        *_numbers("amount", "quantity", "unit", "price", "subject"),
        *_whole("amount", "quantity"),
    )
    op.create_index("ledger_postings_by_entry", "ledger_postings", ["entry"])
    op.create_index("ledger_postings_by_account", "ledger_postings", ["account", "entry"])
    _table(
        "ledger_balances",
        sa.Column("account", _NUMBER, sa.ForeignKey("ledger_accounts.id"), primary_key=True),
        *_numbers("high", "low"),
        *_whole("high", "low"),
    )


def _prices() -> None:
    _table(
        "prices",
        _id(),
        *_numbers("unit", "amount"),
        *_words("project", "model", "version"),
        *_numbers("valid_from_ns", "create_us"),
    )
    _table(
        "machine_prices",
        _id(),
        *_words("pool"),
        *_numbers("hourly_amount", "machines", "valid_from_ns", "create_us"),
    )


def _spending() -> None:
    _table(
        "spending",
        sa.Column("project", _TEXT, primary_key=True),
        sa.Column("month", _NUMBER, primary_key=True),
        *_numbers("amount"),
        *_whole("amount"),
        with_rowid=False,
    )
    _table(
        "spending_alerts",
        sa.Column("project", _TEXT, primary_key=True),
        sa.Column("alert", _TEXT, primary_key=True),
        *_numbers("monthly_amount"),
        *_words("percents", "webhook"),
        *_numbers("create_us"),
    )
    _table(
        "spending_notices",
        _id(),
        *_words("project", "alert"),
        *_numbers("month", "percent", "spent", "monthly_amount"),
        *_words("webhook"),
        *_numbers("create_us"),
        sa.Column("deliver_us", _NUMBER),
        sa.UniqueConstraint("project", "alert", "month", "percent", name="spending_notices_once"),
    )
    op.create_index(
        "spending_notices_undelivered",
        "spending_notices",
        ["id"],
        **_only("deliver_us IS NULL AND webhook <> ''"),
    )


def _forever() -> None:
    """What is written stays as it is, whoever asks."""
    (_forever_in_sqlite if _is_sqlite() else _forever_in_postgres)()


def _forever_in_postgres() -> None:
    op.execute(
        "CREATE FUNCTION metering_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    for table in _FOREVER:
        op.execute(
            f"CREATE TRIGGER {table}_forever BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION metering_append_only()"
        )
    op.execute(
        "CREATE TRIGGER usage_rows_no_update BEFORE UPDATE OR TRUNCATE ON usage_rows"
        " FOR EACH STATEMENT EXECUTE FUNCTION metering_append_only()"
    )
    op.execute(
        "CREATE FUNCTION metering_rows_kept() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF EXISTS (SELECT 1 FROM gone WHERE entry >"
        " (SELECT coalesce(max(upto_entry), 0) FROM usage_retention)) THEN"
        " RAISE EXCEPTION 'usage_rows are kept until retention drops them'; END IF;"
        " RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER usage_rows_no_delete AFTER DELETE ON usage_rows REFERENCING OLD TABLE AS gone"
        " FOR EACH STATEMENT EXECUTE FUNCTION metering_rows_kept()"
    )


def _forever_in_sqlite() -> None:
    for table in _FOREVER:
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{act.lower()} BEFORE {act} ON {table} BEGIN"
                f" SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
    op.execute(
        "CREATE TRIGGER usage_rows_no_update BEFORE UPDATE ON usage_rows BEGIN"
        " SELECT RAISE(ABORT, 'usage_rows is append-only'); END"
    )
    op.execute(
        "CREATE TRIGGER usage_rows_no_delete BEFORE DELETE ON usage_rows"
        " WHEN OLD.entry > (SELECT coalesce(max(upto_entry), 0) FROM usage_retention) BEGIN"
        " SELECT RAISE(ABORT, 'usage_rows are kept until retention drops them'); END"
    )


def upgrade() -> None:
    _usage()
    _ledger()
    _prices()
    _spending()
    _forever()


def downgrade() -> None:
    for table in (
        *("spending_notices", "spending_alerts", "spending", "machine_prices", "prices"),
        *("ledger_balances", "ledger_postings", "ledger_entries", "ledger_accounts"),
        *(
            "usage_family_rollups",
            "usage_rollups",
            "usage_retention",
            "usage_superseded",
            "usage_telemetry",
            "usage_rows",
        ),
        *("usage_subjects", "usage_sources"),
    ):
        op.drop_table(table)
    if not _is_sqlite():
        op.execute("DROP FUNCTION metering_append_only()")
        op.execute("DROP FUNCTION metering_rows_kept()")
