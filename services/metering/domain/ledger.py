"""The ledger's entries: postings that sum to 0, chained by hashes."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

from services.metering.domain.charge import Line
from services.metering.domain.price import NO_PRICE, PriceId
from services.metering.domain.unit import Unit
from services.metering.domain.usage import COLUMNS, Column, Outcome, Subject, Telemetry

EntryNumber = NewType("EntryNumber", int)  # from 1, one by one
HASH_BYTES = 32
NO_HASH = bytes(HASH_BYTES)  # before the first entry

_REVENUE = "revenue/"
CREDITS = "credits"
CORRECTIONS = "corrections"


class EntryKind(IntEnum):
    """Where an entry comes from."""

    USAGE = 1
    CREDIT = 2
    CORRECTION = 3
    PRICE = 4  # a price was made; what it says is the reason


@dataclass(frozen=True, slots=True)
class Posting:
    """One account's part of an entry."""

    account: str
    amount: int  # positive: the project owes more
    quantity: int = 0
    unit: Unit | None = None
    price: PriceId = NO_PRICE
    subject: int = 0  # as the store numbers subjects; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One transaction. Never changed."""

    number: EntryNumber
    kind: EntryKind
    create_us: int  # since 1970
    reason: str = ""
    corrects: int = 0  # number of an entry; 0: none in particular
    request_key: str | None = None  # drawn by the caller: the same one is one entry
    # Of usage: which rows it counts, and by what they were charged.
    source: int = 0
    first_sequence: int = 0
    first_row: int = 0
    row_count: int = 0
    last_price: PriceId = NO_PRICE
    charged: int = 0  # outcomes, as bits
    rows_hash: bytes = b""

    def digest(
        self, before: bytes, postings: Sequence[Posting], subjects: Mapping[int, Subject]
    ) -> bytes:
        """The entry's hash: over what it says, its postings and their subjects, and the entry before it."""
        says = [
            self.number,
            self.kind,
            self.create_us,
            self.reason,
            self.corrects,
            self.request_key,
            self.source,
            self.first_sequence,
            self.first_row,
            self.row_count,
            self.last_price,
            self.charged,
            self.rows_hash.hex(),
            [
                [number, *_words(subjects.get(number))]
                for number in sorted({p.subject for p in postings} - {0})
            ],
            [[p.account, p.amount, p.quantity, p.unit or 0, p.price, p.subject] for p in postings],
        ]
        text = json.dumps(says, separators=(",", ":"))
        return hashlib.blake2b(before + text.encode(), digest_size=HASH_BYTES).digest()


def _words(subject: Subject | None) -> tuple[str | int, ...]:
    return () if subject is None else subject.words


@dataclass(frozen=True, slots=True)
class HashedRows:
    """What the hash of an entry's rows covers."""

    request_ids: bytes
    subject: Column  # as the store numbers them
    columns: Mapping[str, Column]
    subjects: Mapping[int, Subject]
    source: str
    telemetry: Sequence[Telemetry]
    superseded: Iterable[
        tuple[int, int, int]
    ]  # row, winner, attempts: of those that gave way in this entry

    def digest(self) -> bytes:
        """The hash."""
        digest = hashlib.blake2b(self.request_ids, digest_size=HASH_BYTES)
        for column in (self.subject, *(self.columns[name] for name in COLUMNS)):
            digest.update(column.astype("<i8").tobytes())
        used = sorted(set(self.subject.tolist()))
        says = [
            self.source,
            [[number, *_words(self.subjects.get(number))] for number in used],
            [
                [
                    t.row,
                    t.fingerprint.hex(),
                    t.input_characters,
                    t.output_characters,
                    scores_text(t.scores),
                ]
                for t in sorted(self.telemetry, key=lambda told: told.row)
            ],
            sorted(self.superseded),
        ]
        digest.update(json.dumps(says, separators=(",", ":")).encode())
        return digest.digest()


def scores_text(scores: Mapping[str, float]) -> str:
    """Scores as they are stored and hashed."""
    return json.dumps(dict(scores), sort_keys=True)


def outcome_bits(outcomes: Iterable[Outcome]) -> int:
    """A set of outcomes as a number."""
    return sum(1 << outcome for outcome in set(outcomes))


def outcomes_of(bits: int) -> frozenset[Outcome]:
    """The set of outcomes of such a number."""
    return frozenset(outcome for outcome in Outcome if bits >> outcome & 1)


def usage_account(project: str) -> str:
    """What a project owes for its usage."""
    return f"projects/{project or '-'}/usage"


def credits_account(project: str) -> str:
    """What a project was given."""
    return f"projects/{project or '-'}/credits"


def usage_postings(
    lines: Mapping[Line, tuple[int, int]], subjects: Sequence[Subject], numbers: Sequence[int]
) -> list[Posting]:
    """A batch's lines on the projects' accounts, and against them each unit's revenue.

    Args:
        lines: quantity and amount.
        subjects: what lines' subjects are places in.
        numbers: how the store numbers them.
    """
    found = []
    revenue: dict[Unit, tuple[int, int]] = {}
    for line, (quantity, amount) in sorted(lines.items()):
        if not quantity and not amount:
            continue
        account = usage_account(subjects[line.subject].project)
        found.append(
            Posting(account, amount, quantity, line.unit, line.price, numbers[line.subject])
        )
        before = revenue.get(line.unit, (0, 0))
        revenue[line.unit] = before[0] - quantity, before[1] - amount
    found += [
        Posting(f"{_REVENUE}{unit.word}", amount, quantity, unit)
        for unit, (quantity, amount) in sorted(revenue.items())
    ]
    return found


def credit_postings(project: str, amount: int) -> list[Posting]:
    """A credit: the project owes so much less."""
    return [Posting(credits_account(project), -amount), Posting(CREDITS, amount)]


def correction_postings(project: str, amount: int) -> list[Posting]:
    """A correction: the project owes so much more, or less."""
    return [Posting(usage_account(project), amount), Posting(CORRECTIONS, -amount)]
