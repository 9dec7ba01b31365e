"""Metering is away for minutes under load: nothing is lost, nothing counts twice, budgets do as they are set.

Run: .venv/bin/python -m benchmarks.metering.away [--minutes 5] [--failure open|closed]

A whole `up` is called with a key whose project has a budget that binds nobody, and with one whose project has none.
Metering is killed, and killed again whenever it is started, for as long as that; then it may come back. It is asked:

- did each call end as promised meanwhile: all are answered; `closed`: those with a budget are refused once leases have
  ended, and answered again once metering is back;
- is each answered call counted once afterwards, as it was delivered, and are there as many rows as workers have
  accepted calls, by their second count;
- does the budget say that as many requests were used as are counted, and hold nothing; does the ledger verify.

Ends with 1, and says why, if not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.failures.accounts import PROJECT, Audit, audit
from benchmarks.failures.calls import Kind
from benchmarks.failures.traffic import Outcome, Traffic
from benchmarks.failures.up_mesh import SECONDS, UpMesh, up
from tests.e2e.mesh import Mesh, eventually

_FREE = "free"  # a project without budgets
_RATES = {Kind.TENSOR: 20.0, Kind.STREAM: 2.0, Kind.OPENAI: 2.0}  # a second, with each key
_LEASE_SECONDS = 10.0
_GRACE_SECONDS = 10.0  # for a busy machine: until all workers have seen that leases ended, or that metering is back
_REFUSED = ("UNAVAILABLE", "HTTP 503")
_REASON = "budgets can't be asked for"
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Absence:
    """When metering was away, on the monotonic clock."""

    begin: float
    end: float  # it could be started again
    back: float  # it answered
    killed: int
    waiting: int  # rows in outboxes at its end


def keep_away(mesh: Mesh, seconds: float) -> Absence:
    """Kill metering whenever it is there, so long; returns when it is back."""
    begin, killed = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        for process in mesh.processes("services.metering"):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait()
                killed += 1
        time.sleep(_LOOK_SECONDS)  # the supervisor can't wake us
    waiting, end = total(mesh, "inferplane_usage_rows_waiting"), time.monotonic()
    eventually(lambda: _answers(mesh), seconds=SECONDS, what="metering is back")
    return Absence(begin, end, time.monotonic(), killed, int(waiting))


def _answers(mesh: Mesh) -> bool:
    return mesh.cli("projects", "list", check=False).returncode == 0


def total(mesh: Mesh, name: str) -> float:
    """Of a metric, over all workers."""
    lines = [line for text in mesh.metrics("worker") for line in text.splitlines()]
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def wrong_endings(outcomes: Sequence[Outcome], absence: Absence, *, refuses: bool) -> list[str]:
    """Calls that did not end as promised."""
    found = []
    for one in outcomes:
        refused = one.how.status in _REFUSED
        must_be_refused = (
            refuses
            and one.begin > absence.begin + _LEASE_SECONDS + _GRACE_SECONDS
            and one.end < absence.end
        )
        may_be_refused = (
            refuses and one.end > absence.begin and one.begin < absence.back + _GRACE_SECONDS
        )
        if (must_be_refused and not refused) or not (one.ok or (may_be_refused and refused)):
            found.append(f"{one.begin - absence.begin:.1f} s: {one.kind} ended so: {one.how}")
    return found


def budget_problems(mesh: Mesh, found: Audit) -> list[str]:
    """What the budget says otherwise than the rows."""
    said = next(
        one
        for one in json.loads(mesh.cli("budget", "list", "--output", "json").stdout)
        if one["name"] == f"projects/{PROJECT}/budgets/most"
    )["status"]
    used, held = int(said.get("used") or 0), int(said.get("held") or 0)
    print(f"budget: {used} requests used, {held} held; {found.requests} counted")
    if used != found.requests or held:
        return [f"the budget says {used} used and {held} held, {found.requests} are counted"]
    return []


def open_free(mesh: Mesh) -> str:
    """A key of a project without budgets."""
    mesh.cli("projects", "create", _FREE)
    key = ("keys", "create", "--project", _FREE, "--endpoint", "*", "--quiet")
    return mesh.cli(*key).stdout.strip()


def suffer(made: UpMesh, minutes: float, *, refuses: bool) -> list[str]:
    """What is not as promised; prints the figures."""
    mesh, free = made.mesh, open_free(made.mesh)
    loads = {made.token: refuses, free: False}
    traffics = {token: Traffic(made.address, token, _RATES) for token in loads}
    with ExitStack() as stack:
        for traffic in traffics.values():
            stack.enter_context(traffic.flowing())
            traffic.answered()
        absence = keep_away(mesh, minutes * 60)
        for traffic in traffics.values():
            traffic.answered()
        unmetered = total(mesh, "inferplane_worker_budget_unmetered_total")
    print(
        f"away for {absence.back - absence.begin:.0f} s, killed {absence.killed} times,"
        f" {absence.waiting} rows waited at the end, {unmetered:.0f} calls let in without leases"
    )
    wrong = []
    for token, refused in loads.items():
        outcomes = traffics[token].outcomes
        meanwhile = [one for one in outcomes if absence.begin < one.begin < absence.end]
        ends = dict(Counter(one.how.status for one in meanwhile))
        reasons = Counter(_REASON in one.how.detail for one in meanwhile if not one.ok)
        print(
            f"{'budget' if token == made.token else 'no budget'}: while it was away: {ends},"
            f" refused for the budget: {reasons[True]}, for anything else: {reasons[False]}"
        )
        wrong += wrong_endings(outcomes, absence, refuses=refused)
    begun = time.monotonic()
    eventually(
        lambda: total(mesh, "inferplane_usage_rows_waiting") == 0, seconds=SECONDS, what="all sent"
    )
    print(f"all rows were sent {time.monotonic() - begun:.1f} s after the load")
    audits = [audit(mesh.cli, token, traffic.outcomes) for token, traffic in traffics.items()]
    for found in audits:
        print(found.told())
        wrong += [*found.lost, *found.double, *found.wrong, *([] if found.ok else [found.ledger])]
    rows = made.rows()
    print(f"rows: {rows.counted}, accepted by workers: {rows.accepted}")
    if not rows.fit:
        wrong.append(f"{rows}")
    eventually(
        lambda: not budget_problems(mesh, audits[0]),
        seconds=2 * _LEASE_SECONDS,
        what="the budget says what is counted",
    )
    return wrong


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--failure", choices=("open", "closed"), default="open")
    said = parser.parse_args()
    variables = {"INFERPLANE_BUDGET_FAILURE": said.failure}
    with tempfile.TemporaryDirectory(prefix="ip-") as name, up(Path(name), variables) as made:
        wrong = suffer(made, said.minutes, refuses=said.failure == "closed")
    for text in wrong[:30]:
        print(f"WRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
