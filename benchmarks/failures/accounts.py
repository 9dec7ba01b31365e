"""Compares what metering has counted with what callers got: nothing lost, nothing counted twice."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess

import duckdb

from benchmarks.failures.traffic import Outcome

PROJECT = "failures"
_PATIENCE = 180.0  # seconds until all has arrived
_QUIET = 12.0  # in which nothing comes: longer than between looks for outboxes of the dead
Command = Callable[..., CompletedProcess[str]]


@dataclass(frozen=True, slots=True)
class Counted:
    """One request as metering has it."""

    outcome: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows, of attempts that gave way too, beside what workers have accepted by a second count of their own."""

    counted: int
    accepted: int
    killed: int  # workers, each of which may have died between the two counts

    @property
    def fit(self) -> bool:
        return self.accepted <= self.counted <= self.accepted + self.killed


@dataclass(slots=True)
class Audit:
    """What came of the comparison."""

    calls: int = 0
    answered: int = 0
    requests: int = 0  # that metering counts
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # counted otherwise than delivered
    outcomes: dict[str, int] = field(default_factory=dict)
    rows: Rows | None = None
    ledger: str = ""  # what its verification said
    ledger_ok: bool = False

    @property
    def ok(self) -> bool:
        rows_fit = self.rows is None or self.rows.fit
        return self.ledger_ok and rows_fit and not (self.lost or self.double or self.wrong)

    def told(self) -> str:
        """For a person."""
        return (
            f"{self.calls} calls sent, {self.answered} answered; metering counts {self.requests} requests"
            f" ({self.rows or 'rows are not counted here'}; {self.outcomes}); lost: {len(self.lost)},"
            f" counted twice: {len(self.double)}, otherwise than delivered: {len(self.wrong)};"
            f" {self.ledger}"
        )


def audit(
    cli: Command, token: str, outcomes: Sequence[Outcome], rows: Callable[[], Rows] | None = None
) -> Audit:
    """Wait until all of a key's requests have arrived, then compare."""
    claims = token.split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    key, wanted = (
        _Key(said["project"], said["jti"]),
        {_plain(o.how.request_id) for o in outcomes if o.ok},
    )
    stored, twice = _settled(cli, key, wanted)
    found = Audit(len(outcomes), sum(o.ok for o in outcomes), len(stored))
    found.outcomes = dict(Counter(one.outcome for one in stored.values()))
    found.double = [f"request {ident} is counted {n} times" for ident, n in twice.items()]
    for one in outcomes:
        _compare(one, stored.pop(_plain(one.how.request_id), None), found)
    unheard = sum(not o.how.request_id for o in outcomes)
    if (
        len(stored) > unheard
    ):  # of calls that heard nothing, not even an id, there may be a row each
        found.double.append(f"{len(stored)} requests of {unheard} calls: {list(stored)[:5]}")
    found.rows = rows() if rows else None
    verified = cli("ledger", "verify", check=False)
    line = (verified.stdout or verified.stderr).split("\n")[0]
    found.ledger, found.ledger_ok = " ".join(line.split()), verified.returncode == 0
    return found


def _compare(one: Outcome, counted: Counted | None, found: Audit) -> None:
    if counted is None:
        if one.ok or one.how.tokens:
            found.lost.append(f"{one.kind} {one.number} {one.how}")
    elif not _agrees(one, counted):
        found.wrong.append(f"{one.kind} {one.number} {one.how} {counted}")


def _plain(ident: str) -> str:
    """An id as both the edge and an export write it."""
    return ident.replace("-", "").lower()


def _agrees(one: Outcome, counted: Counted) -> bool:
    if one.ok:
        return counted.outcome == "ok" and counted.tokens == one.how.tokens
    return counted.tokens >= one.how.tokens  # the last piece may not have arrived


@dataclass(frozen=True, slots=True)
class _Key:
    project: str
    jti: str


def _settled(
    cli: Command, key: _Key, wanted: set[str]
) -> tuple[dict[str, Counted], dict[str, int]]:
    """All requests by id, once no more come; and those that are there more than once."""
    end, before, since = time.monotonic() + _PATIENCE, -1, time.monotonic()
    while True:
        stored, twice = _export(cli, key)
        if len(stored) != before:
            before, since = len(stored), time.monotonic()
        waited = time.monotonic() - since
        if waited > _QUIET and (wanted <= stored.keys() or time.monotonic() > end):
            return stored, twice
        time.sleep(1.0)  # another process, which can't wake us


def _export(cli: Command, key: _Key) -> tuple[dict[str, Counted], dict[str, int]]:
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        file = Path(name) / "usage.parquet"
        words = ("--format", "parquet", "--project", key.project, "--file", str(file))
        # Clocks may have been ahead.
        until = (datetime.now(UTC) + timedelta(days=3)).strftime("%Y-%m-%d")
        times = ("--since", "2d", "--until", until)
        if cli("usage", "export", *times, *words, check=False).returncode:
            return {}, {}  # metering is not back yet
        query = f"SELECT request_id, outcome, output_tokens FROM '{file}' WHERE key LIKE ?"
        with duckdb.connect() as database:
            lines = database.execute(query, [f"%{key.jti}"]).fetchall()
    seen = Counter(_plain(str(line[0])) for line in lines)
    stored = {_plain(str(i)): Counted(str(how), int(n or 0)) for i, how, n in lines}
    return stored, {ident: n for ident, n in seen.items() if n > 1}


def open_project(cli: Command) -> str:
    """The project of the load, with a budget that binds nobody but is kept, and a key of it."""
    known = json.loads(cli("projects", "list", "--output", "json").stdout)
    if not any(one["name"] == f"projects/{PROJECT}" for one in known):
        cli("projects", "create", PROJECT)
        cli("budget", "set", f"{PROJECT}/most", "--requests", "100000000", "--per", "day")
        cli("prices", "set", "request", "0.001", "--project", PROJECT)
    key = ("keys", "create", "--project", PROJECT, "--endpoint", "*", "--quiet")
    return cli(*key).stdout.strip()
