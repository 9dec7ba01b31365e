"""Compares what metering has stored with what callers got and what workers handed out."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.kill_matrix.client import KINDS, TENSOR, TEXT, message, tokens_of

OK = 1
_MODELS = {"tensor": TENSOR, "stream": TEXT, "text": TEXT}


@dataclass(slots=True)
class Sent:
    """One request as its caller knows it."""

    number: int
    size: int
    tokens: int = 0  # received
    end: str = "KILLED"  # of a caller that was killed


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


def read_sent(log: Path) -> dict[int, Sent]:
    """By number; a last line that a kill has cut is no line."""
    found: dict[int, Sent] = {}
    for line in log.read_bytes().splitlines():
        said = json.loads(line) if line.endswith(b"}") else {}
        if said.get("sent"):
            found[said["n"]] = Sent(said["n"], said["size"])
        elif "got" in said:
            found[said["n"]].tokens += said["got"]
        elif "end" in said:
            found[said["n"]].end = said["end"]
    return found


def read_audit(path: Path) -> Audit:
    """Sums of its lines."""
    audit = Audit()
    for line in path.read_bytes().splitlines():
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
    sent: dict[int, Sent], stored: dict[tuple[str, int], Stored], audit: Audit, kills: Counter[str]
) -> list[str]:
    """All that is not as promised; none: it is."""
    found: list[str] = []
    by_row = {(_model(one), one.size): one for one in sent.values()}
    found += [f"a row of no request: {key}" for key in stored if key not in by_row]
    for one in sent.values():
        found += _of_one(one, stored.get((_model(one), one.size)))
    rows = sum(len(one.outcomes) for one in stored.values())
    tokens = sum(one.tokens for one in stored.values())
    if not audit.accepted <= rows <= audit.accepted + kills["worker"]:
        found.append(f"{rows} rows, {audit.accepted} accepted, {kills['worker']} workers killed")
    if not tokens <= audit.tokens:
        found.append(f"{tokens} tokens counted, {audit.tokens} handed out")
    return found


def _model(one: Sent) -> str:
    return _MODELS[KINDS[one.number % len(KINDS)]]


def _of_one(one: Sent, stored: Stored | None) -> list[str]:
    assert one.size == message(one.number).ByteSize()
    if stored is None:
        return [f"no row of {one}"] if one.end == "OK" or one.tokens else []
    found = []
    if stored.counted != 1 or len(stored.requests) != 1:
        found.append(f"counted {stored.counted} times: {one} {stored}")
    if one.end == "OK" and stored.outcome != OK:
        found.append(f"answered, and counted as {stored.outcome}: {one}")
    is_text = _model(one) == TEXT
    most = tokens_of(one.number) * len(stored.outcomes) if is_text else 0
    if not one.tokens <= stored.tokens <= most:
        found.append(f"{stored.tokens} tokens counted: {one}")
    return found
