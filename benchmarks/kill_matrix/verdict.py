"""Compares what metering has stored with what callers got and what workers handed out."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kill_matrix.calls import TINY, Kind

OK = 1
OUTCOMES = ("", "ok", "failed", "cancelled", "deadline", "aborted")
KILLED = "KILLED"


@dataclass(slots=True)
class Sent:
    """One request as its caller knows it."""

    number: int
    kind: Kind
    size: int
    most: int  # tokens that it asked for
    tokens: int = 0  # received
    end: str = KILLED  # of a caller that was killed

    @property
    def row(self) -> tuple[str, int]:
        """By what its rows are found."""
        return self.kind.model, self.size


@dataclass(slots=True)
class Stored:
    """Rows of one request: attempts that gave way, and the one that counts."""

    outcomes: list[int] = field(default_factory=list)
    tokens: int = 0
    counted: int = 0  # rows that did not give way
    requests: set[bytes] = field(default_factory=set)
    outcome: int = 0  # of the one that counts


@dataclass(slots=True)
class Audit:
    """The workers' second count."""

    accepted: int = 0
    tokens: int = 0


def note(sent: dict[int, Sent], said: Mapping[str, Any]) -> None:
    """Take in what a caller said."""
    number = said["n"]
    if said.get("sent"):
        sent[number] = Sent(number, Kind(said["kind"]), said["size"], said["tokens"])
    elif "got" in said:
        sent[number].tokens += said["got"]
    elif "end" in said:
        sent[number].end = said["end"]


def read_sent(log: Path) -> dict[int, Sent]:
    """By number; a last line that a kill has cut is no line."""
    found: dict[int, Sent] = {}
    for line in log.read_bytes().splitlines():
        if line.endswith(b"}"):
            note(found, json.loads(line))
    return found


def read_audit(path: Path, first: int = 0) -> Audit:
    """Sums of its lines, from a place in the file on."""
    audit = Audit()
    for line in path.read_bytes()[first:].splitlines():
        if line == b"A":
            audit.accepted += 1
        elif line.startswith(b"T "):
            audit.tokens += int(line[2:])
    return audit


def count_rows(database: Path) -> int:
    """All that are stored."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return int(connection.execute("select count(*) from usage_rows").fetchone()[0])


def read_stored(database: Path) -> dict[tuple[str, int], Stored]:
    """By model and size of the request."""
    found: dict[tuple[str, int], Stored] = defaultdict(Stored)
    query = (
        "select s.model, r.request_bytes, r.request_id, r.outcome, r.output_tokens, x.row is null"
        " from usage_rows r join usage_subjects s on s.id = r.subject"
        " left join usage_superseded x on x.row = r.id"
    )
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        for model, size, ident, outcome, tokens, counts in connection.execute(query):
            stored = found[model, size]
            stored.outcomes.append(outcome)
            stored.requests.add(bytes(ident))
            stored.tokens += tokens
            if counts:
                stored.counted += 1
                stored.outcome = outcome
    return found


def problems(
    sent: Mapping[int, Sent],
    stored: Mapping[tuple[str, int], Stored],
    audit: Audit,
    between: int,
) -> list[str]:
    """All that is not as promised; none: it is. So many workers may have died `between` the two counts."""
    found: list[str] = []
    by_row = {one.row: one for one in sent.values()}
    assert len(by_row) == len(sent), "two requests are of one size"
    found += [f"a row of no request: {key}" for key in stored if key not in by_row]
    for one in sent.values():
        found += of_one(one, stored.get(one.row))
    rows = sum(len(one.outcomes) for one in stored.values())
    tokens = sum(one.tokens for one in stored.values())
    if not audit.accepted <= rows <= audit.accepted + between:
        found.append(f"{rows} rows, {audit.accepted} accepted, at most {between} between the two")
    if not tokens <= audit.tokens:
        found.append(f"{tokens} tokens counted, {audit.tokens} handed out")
    return found


def of_one(one: Sent, stored: Stored | None) -> list[str]:
    """What is not as promised of one request."""
    if stored is None:
        return [f"no row of {one}"] if one.end == "OK" or one.tokens else []
    found = []
    if stored.counted != 1 or len(stored.requests) != 1:
        found.append(f"counted {stored.counted} times: {one} {stored}")
    if one.end == "OK" and stored.outcome != OK:
        found.append(f"answered, and counted as {stored.outcome}: {one}")
    most = one.most * len(stored.outcomes) if one.kind.model == TINY else 0
    if not one.tokens <= stored.tokens <= most:
        found.append(f"{stored.tokens} tokens counted: {one}")
    return found


def ends(sent: Mapping[int, Sent]) -> dict[str, int]:
    """How callers saw them end."""
    return dict(Counter(one.end for one in sent.values()).most_common())
