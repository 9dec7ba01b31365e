"""Finished requests as workers count them: subjects, and columns of whole numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.rpc.names import VersionName, check_id, parse_version

Column = npt.NDArray[np.int64]

LARGEST_BATCH = 65_536  # rows
ID_BYTES = 16
_LARGEST_NUMBER = 2**62
_LONGEST_SPAN = 2**50  # ns, 13 days; longer ones are counted as that
_LARGEST_QUANTITY = 2**40  # of what is summed up over years
_LONGEST_WORD = 128  # characters of digests and sources
_LONGEST_KEY = 255  # characters; a key of somebody else's issuer is its subject


class Kind(IntEnum):
    """Why a request was computed."""

    REQUEST = 1
    SHADOW = 2  # a mirrored copy: never charged, in no ledger entry
    BATCH = 3


class Outcome(IntEnum):
    """How a request ended."""

    OK = 1
    FAILED = 2
    CANCELLED = 3
    DEADLINE = 4
    ABORTED = 5


# Numbers of a row, in the order in which they are stored and hashed; the request's id comes beside them.
COLUMNS = (
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
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What requests have in common."""

    project: str  # empty where the edge asks for no key; so are key and endpoint
    key: str
    endpoint: str
    model: str
    version: str
    digest: str
    kind: Kind
    pool: str

    @property
    def words(self) -> tuple[str | int, ...]:
        """All of it, in the order in which it is stored and hashed."""
        return (
            *(self.project, self.key, self.endpoint, self.model, self.version, self.digest),
            *(int(self.kind), self.pool),
        )

    @property
    def family(self) -> "Subject":
        """What it has in common with other keys."""
        return replace(self, key="", digest="")

    @property
    def version_name(self) -> str:
        """`models/{model}/versions/{version}`."""
        return str(VersionName(self.model, self.version)) if self.model else ""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What is known of one row's text beside its length."""

    row: int  # place in the batch
    fingerprint: bytes
    input_characters: int
    output_characters: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """Rows of one source, one after the other."""

    source: str
    first_sequence: int
    worker: str
    pool: str
    subjects: Sequence[Subject]
    subject: Column  # place in `subjects`
    request_ids: bytes  # 16 bytes each
    columns: Mapping[str, Column]  # all of COLUMNS
    telemetry: Sequence[Telemetry] = field(default=())

    def __len__(self) -> int:
        return len(self.subject)

    def after(self, count: int) -> "UsageBatch":
        """Without its first rows."""
        return UsageBatch(
            source=self.source,
            first_sequence=self.first_sequence + count,
            worker=self.worker,
            pool=self.pool,
            subjects=self.subjects,
            subject=self.subject[count:],
            request_ids=self.request_ids[count * ID_BYTES :],
            columns={name: column[count:] for name, column in self.columns.items()},
            telemetry=[
                Telemetry(
                    told.row - count,
                    told.fingerprint,
                    told.input_characters,
                    told.output_characters,
                    told.scores,
                )
                for told in self.telemetry
                if told.row >= count
            ],
        )


def check_subject(place: int, subject: Subject) -> list[FieldViolation]:
    """What is wrong with a subject."""
    found: list[FieldViolation] = []
    at = f"batch.subjects[{place}]"
    for name in ("project", "endpoint", "pool"):
        value = getattr(subject, name)
        if value:
            found += _violations(check_id, f"{at}.{name}", value)
    if subject.model or subject.version:
        found += _violations(parse_version, f"{at}.version", subject.version_name)
    for name, longest in (("key", _LONGEST_KEY), ("digest", _LONGEST_WORD)):
        value = getattr(subject, name)
        if len(value) > longest or not value.isprintable():
            found.append(
                FieldViolation(f"{at}.{name}", f"allowed: at most {longest} printable characters")
            )
    return found


def _violations(check: object, name: str, value: str) -> Sequence[FieldViolation]:
    assert callable(check)
    try:
        check(name, value)
    except InvalidArgumentError as error:
        return error.violations
    return ()


def check_batch(batch: UsageBatch) -> UsageBatch:
    """The batch as it is stored; InvalidArgumentError names all that is wrong with it.

    An attempt of 0 is the first. More cached tokens than input tokens are taken as all of them: refusing would stop a
    worker's outbox for ever, and no charge comes of it.
    """
    found = [
        v for place, subject in enumerate(batch.subjects) for v in check_subject(place, subject)
    ]
    found += _wrong_shapes(batch)
    if not found:
        found += _wrong_numbers(batch)
    if found:
        raise InvalidArgumentError.of_fields(found)
    columns = dict(batch.columns)
    columns["attempt"] = np.maximum(columns["attempt"], 1)
    columns["cached_tokens"] = np.minimum(columns["cached_tokens"], columns["input_tokens"])
    columns["from_cache"] = np.minimum(columns["from_cache"], 1)
    for name in ("duration_ns", "queue_ns", "compute_ns"):
        columns[name] = np.minimum(columns[name], _LONGEST_SPAN)
    return UsageBatch(
        source=batch.source,
        first_sequence=batch.first_sequence,
        worker=batch.worker,
        pool=batch.pool,
        subjects=batch.subjects,
        subject=batch.subject,
        request_ids=batch.request_ids,
        columns=columns,
        telemetry=batch.telemetry,
    )


def _wrong_shapes(batch: UsageBatch) -> list[FieldViolation]:
    count = len(batch)
    found: list[FieldViolation] = []
    if not 1 <= len(batch.source) <= _LONGEST_WORD or not batch.source.isprintable():
        found.append(
            FieldViolation("source", f"allowed: 1 to {_LONGEST_WORD} printable characters")
        )
    if batch.first_sequence > _LARGEST_NUMBER:
        found.append(FieldViolation("first_sequence", f"allowed: at most {_LARGEST_NUMBER}"))
    if not 1 <= count <= LARGEST_BATCH:
        found.append(
            FieldViolation("batch.subject", f"{count} rows; allowed: 1 to {LARGEST_BATCH}")
        )
    if len(batch.request_ids) != count * ID_BYTES:
        found.append(
            FieldViolation(
                "batch.request_ids",
                f"{len(batch.request_ids)} bytes; allowed: {ID_BYTES} for each of {count} rows",
            )
        )
    for name, column in batch.columns.items():
        if len(column) != count:
            found.append(
                FieldViolation(
                    f"batch.{name}",
                    f"{len(column)} values; allowed: {count}, as `subject` has, or none",
                )
            )
    for told in batch.telemetry:
        if told.row >= count or len(told.fingerprint) > 64 or len(told.scores) > 64:
            found.append(
                FieldViolation(
                    "batch.telemetry",
                    f"of row {told.row}; allowed: rows under {count}, 64 bytes, 64 scores",
                )
            )
            break
    return found


def _wrong_numbers(batch: UsageBatch) -> list[FieldViolation]:
    found: list[FieldViolation] = []
    if int(batch.subject.max()) >= len(batch.subjects):
        found.append(
            FieldViolation(
                "batch.subject",
                f"{int(batch.subject.max())}; allowed: under {len(batch.subjects)}, the number of subjects",
            )
        )
    outcome = batch.columns["outcome"]
    if int(outcome.min()) < Outcome.OK or int(outcome.max()) > Outcome.ABORTED:
        found.append(FieldViolation("batch.outcome", "allowed: values of UsageOutcome but 0"))
    for name, column in batch.columns.items():
        largest = _LARGEST_NUMBER if name.endswith("_ns") else _LARGEST_QUANTITY
        if int(column.min()) < 0 or int(column.max()) > largest:
            found.append(FieldViolation(f"batch.{name}", f"allowed: 0 to {largest}"))
    return found
