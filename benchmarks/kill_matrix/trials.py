"""Kills at one moment each: which there are, and what became of the call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.kill_matrix.calls import TINY, Kind
from benchmarks.kill_matrix.verdict import OUTCOMES, Audit, Sent, Stored, of_one

TOKENS = 16  # of a text
# Client last but one, since it needs no time: so services live longer between their deaths.
VICTIMS = ("worker", "metering", "client", "envoy")
STREAMS = (Kind.STREAM, Kind.SSE)
UNARY = (Kind.TENSOR, Kind.REST, Kind.TEXT, Kind.OPENAI)
STAGES = {
    "before": "before it is sent",
    "accepted": "accepted by a worker",
    "compute": "while it is computed",
    "ended": "counted, its answer not handed over",
    "unsent": "answered, its row not sent",
    "stored": "answered, metering has its row, the worker does not know",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """Who is killed at which moment of what."""

    kind: Kind
    victim: str
    stage: str  # of STAGES; of a stream: how many chunks have come

    @property
    def chunks(self) -> int | None:
        """Of a stream."""
        return int(self.stage) if self.kind in STREAMS else None


def all_trials() -> Iterator[Trial]:
    """Each victim at each chunk of a stream and at each stage of a unary call."""
    moments = [(kind, str(chunk)) for kind in STREAMS for chunk in range(TOKENS + 1)]
    moments += [(kind, stage) for kind in UNARY for stage in STAGES]
    for kind, moment in moments:
        for victim in VICTIMS:
            yield Trial(kind, victim, moment)


def few_trials() -> Iterator[Trial]:
    """Each victim and each way at least once."""
    yield Trial(Kind.STREAM, "worker", "7")
    yield Trial(Kind.REST, "metering", "unsent")
    yield Trial(Kind.STREAM, "client", "5")
    yield Trial(Kind.OPENAI, "envoy", "accepted")
    yield Trial(Kind.TENSOR, "worker", "ended")
    yield Trial(Kind.STREAM, "metering", "3")
    yield Trial(Kind.TEXT, "client", "compute")
    yield Trial(Kind.SSE, "worker", str(TOKENS))


@dataclass(slots=True)
class Told:
    """What became of one trial."""

    trial: Trial
    number: int
    audit: Audit = field(default_factory=Audit)  # of the workers, for it alone


@dataclass(frozen=True, slots=True)
class Cell:
    """One trial as it is shown."""

    told: Told
    sent: Sent | None  # None: its caller was killed before
    stored: Stored | None

    @property
    def problems(self) -> list[str]:
        """What is not as promised: here nobody dies between the two counts."""
        audit, rows = self.told.audit, self.rows
        found = [] if self.sent is None else of_one(self.sent, self.stored)
        if rows != audit.accepted:
            found.append(f"{audit.accepted} accepted, {rows} rows")
        if self.counted > audit.tokens:
            found.append(f"{audit.tokens} tokens handed out, {self.counted} counted")
        return [f"{self.told.trial}: {one}" for one in found]

    @property
    def rows(self) -> int:
        """Attempts of it that metering has."""
        return 0 if self.stored is None else len(self.stored.outcomes)

    @property
    def counted(self) -> int:
        """Tokens."""
        return 0 if self.stored is None else self.stored.tokens

    @property
    def shown(self) -> str:
        """In one word."""
        how = "-" if self.stored is None else OUTCOMES[self.stored.outcome]
        more = f"({self.rows})" if self.rows > 1 else ""
        if self.sent is None or self.sent.kind.model != TINY:
            return how + more
        return f"{self.sent.tokens}/{self.counted}/{self.told.audit.tokens} {how}{more}"


def table(cells: Sequence[Cell]) -> str:
    """A line for each victim and way, a column for each moment."""
    lines: dict[tuple[Kind, str], list[str]] = defaultdict(list)
    for cell in cells:
        trial = cell.told.trial
        lines[trial.kind, trial.victim].append(f"{trial.stage}: {cell.shown}")
    told = "\n".join(f"{kind} {victim} | " + " | ".join(of) for (kind, victim), of in lines.items())
    return f"tokens received/counted/handed out, and as what it is counted (rows)\n{told}"


def summary(cells: Sequence[Cell]) -> str:
    """A line for each victim."""
    lines = ["victim | kills | accepted | rows | requests | received | counted | handed out | seen"]
    for victim in VICTIMS:
        of = [cell for cell in cells if cell.told.trial.victim == victim]
        if of:
            ends = Counter("not sent" if cell.sent is None else cell.sent.end for cell in of)
            figures = (
                len(of),
                sum(cell.told.audit.accepted for cell in of),
                sum(cell.rows for cell in of),
                sum(0 if cell.stored is None else cell.stored.counted for cell in of),
                sum(0 if cell.sent is None else cell.sent.tokens for cell in of),
                sum(cell.counted for cell in of),
                sum(cell.told.audit.tokens for cell in of),
            )
            lines.append(f"{victim} | {' | '.join(map(str, figures))} | {dict(ends)}")
    return "\n".join(lines)
