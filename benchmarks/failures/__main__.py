"""The failure table on a whole `up`: each row under one steady load, then what was counted against what callers got.

Run: .venv/bin/python -m benchmarks.failures [--rounds 1] [--only TEXT] [--json FILE]

Prints a row for each failure: calls under way meanwhile, how they ended, how long they took, and the longest time
without an answer. Ends with 1, and says why, if a call ended as it may not, less than 99.9 % of all were answered,
a request was lost or counted twice, or the ledger does not verify.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.failures.accounts import audit
from benchmarks.failures.book import Book, show, write
from benchmarks.failures.failure import Failure
from benchmarks.failures.traffic import Traffic
from benchmarks.failures.up_machine import Machine, machine
from benchmarks.failures.up_machine_rows import clock_failures, disk_failures
from benchmarks.failures.up_mesh import UpMesh, up
from benchmarks.failures.up_rows import FAILURES

_ENOUGH = 99.9  # of a hundred calls


def rows_of(own: Machine) -> list[Failure[UpMesh]]:
    """All that can fail here."""
    disks = disk_failures(own.disks) if own.disks else ()
    return [*FAILURES, *disks, *(clock_failures(own.clock) if own.clock else ())]


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--json", type=Path, default=None)
    said = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ip-") as name,
        machine(Path(name)) as own,
        up(Path(name)) as mesh,
    ):
        chosen = [failure for failure in rows_of(own) if said.only in failure.name]
        traffic = Traffic(mesh.address, mesh.token)
        book = Book(traffic)
        try:
            with traffic.flowing():
                for number in range(said.rounds):
                    for failure in chosen:
                        print(f"round {number + 1}: {failure.name}", flush=True)
                        failure.run(mesh, traffic, book)
                traffic.answered()
        finally:
            rows = [*book.rows, book.total()]
            show(rows, "Failures on `up`")
        found = audit(mesh.mesh.cli, mesh.token, traffic.outcomes, mesh.rows)
    print(found.told())
    if said.json is not None:
        write(rows, said.json, audit=asdict(found))
    wrong = [f"{row.name}: {text}" for row in book.rows for text in row.broken]
    wrong += [*found.lost, *found.double, *found.wrong]
    for text in wrong[:30]:
        print(f"WRONG: {text}")
    return 0 if not wrong and found.ok and rows[-1].availability >= _ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
