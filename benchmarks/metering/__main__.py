"""Measures metering: `python -m benchmarks.metering ingest|query`."""

import argparse
import asyncio

from benchmarks.metering.ingest import Amount, ingest
from benchmarks.metering.query import query
from tests.postgres import started


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    taken = commands.add_parser("ingest", help="rows a second that a metering process takes")
    taken.add_argument("--rows", type=int, default=1_000_000)
    taken.add_argument("--batch", type=int, default=5000)
    taken.add_argument("--workers", type=int, default=2)
    taken.add_argument("--keys", type=int, default=1000)
    taken.add_argument(
        "--store",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="postgresql: a server that is started for it, whose commits are as durable as SQLite's",
    )
    asked = commands.add_parser("query", help="how long reports take over many rows")
    asked.add_argument("--rows", type=int, default=10_000_000)
    asked.add_argument("--keys", type=int, default=1000)
    asked.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    if given.command == "ingest":
        amount = Amount(given.rows, given.batch, given.workers, given.keys)
        if given.store == "sqlite":
            asyncio.run(ingest(amount, ""))
        else:
            with started("fsync=on", "full_page_writes=on") as server:
                asyncio.run(ingest(amount, server.url))
    else:
        asyncio.run(query(given.rows, given.keys, given.repeats))


if __name__ == "__main__":
    main()
