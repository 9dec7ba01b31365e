"""The ledger's use cases: credits, corrections, balances, proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.metering.domain.ledger import (
    HASH_BYTES,
    NO_HASH,
    Entry,
    EntryKind,
    EntryNumber,
    correction_postings,
    credit_postings,
)
from services.metering.domain.money import parse_amount
from services.metering.domain.verification import Verification
from services.metering.ports.ledger_store import LedgerStore, StoredEntry
from services.metering.ports.project_lookup import ProjectLookup
from services.rpc.clock import Clock
from services.rpc.errors import InvalidArgumentError, NotFoundError
from services.rpc.names import ProjectName, shown
from services.rpc.violations import Violations

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIX = "ledgerEntries/"
_LONGEST_REASON = 1000
_LONGEST_REQUEST_ID = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a caller says of a credit or correction."""

    project: ProjectName
    amount: str
    reason: str
    request_id: str
    corrects: str = ""


def entry_number(field: str, name: str) -> EntryNumber:
    """The number in an entry's name; InvalidArgumentError if it is none."""
    number = name.removeprefix(_PREFIX)
    if not (
        name.startswith(_PREFIX) and number.isascii() and number.isdecimal() and len(number) <= 18
    ):
        raise InvalidArgumentError.of_field(
            field, f"{shown(name)}; allowed: ledgerEntries/{{number}}"
        )
    return EntryNumber(int(number))


class Ledger:
    """Used on the event loop."""

    def __init__(self, store: LedgerStore, projects: ProjectLookup, clock: Clock) -> None:
        self._store = store
        self._projects = projects
        self._clock = clock

    async def get(self, name: str) -> StoredEntry:
        """One entry; NotFoundError if there is none."""
        found = await self._store.get(entry_number("name", name))
        if found is None:
            raise NotFoundError(f"there is no {name}", metadata={"name": name})
        return found

    async def entries(
        self, project: ProjectName | None, kind: EntryKind | None, before: int, most: int
    ) -> Sequence[StoredEntry]:
        """The newest entries, of one project or of all."""
        prefix = f"{project}/" if project is not None else ""
        return await self._store.entries(prefix, kind, before, most)

    async def balances(self, project: ProjectName) -> Mapping[str, int]:
        """The project's accounts; their sum is what it owes."""
        return await self._store.balances(f"{project}/")

    async def add_credit(self, change: Change) -> StoredEntry:
        """Lower what a project owes; NotFoundError if there is no such project."""
        amount = _checked(change, least=1)
        await self._projects.get(change.project)
        entry = self._entry(EntryKind.CREDIT, change)
        return await self._store.append(entry, credit_postings(change.project.project, amount))

    async def add_correction(self, change: Change) -> StoredEntry:
        """Raise or lower what a project owes for its usage; NotFoundError: no such project, or entry."""
        amount = _checked(change, least=None)
        await self._projects.get(change.project)
        corrects = 0
        if change.corrects:
            corrects = (await self.get(change.corrects)).entry.number
        entry = self._entry(EntryKind.CORRECTION, change, corrects)
        return await self._store.append(entry, correction_postings(change.project.project, amount))

    async def verify(self, known_entry: str, known_hash: str) -> Verification:
        """Prove that everything adds up, or say what doesn't."""
        if not known_entry and not known_hash:
            return await self._store.verify(0, NO_HASH)
        number = entry_number("known_entry", known_entry)
        try:
            digest = bytes.fromhex(known_hash)
        except ValueError:
            digest = b""
        if len(digest) != HASH_BYTES:
            raise InvalidArgumentError.of_field(
                "known_hash", f"allowed: {2 * HASH_BYTES} hexadecimal digits"
            )
        return await self._store.verify(number, digest)

    def _entry(self, kind: EntryKind, change: Change, corrects: int = 0) -> Entry:
        key = f"{change.project}/{change.request_id}" if change.request_id else None
        return Entry(
            number=EntryNumber(0),
            kind=kind,
            create_us=(self._clock.now() - _EPOCH) // timedelta(microseconds=1),
            reason=change.reason,
            corrects=corrects,
            request_key=key,
        )


def _checked(change: Change, least: int | None) -> int:
    """The amount; all that is wrong with the change is told at once."""
    violations = Violations()
    amount = violations.take(parse_amount, "amount", change.amount)
    if amount is not None:
        bad = amount == 0 if least is None else amount < least
        violations.require(
            not bad, "amount", f"allowed: {'not 0' if least is None else 'more than 0'}"
        )
    violations.require(
        1 <= len(change.reason) <= _LONGEST_REASON,
        "reason",
        f"{len(change.reason)} characters; allowed: 1 to {_LONGEST_REASON}",
    )
    for field in ("reason", "request_id"):  # which Postgres can't keep
        violations.require("\0" not in getattr(change, field), field, "allowed: no character 0")
    violations.require(
        len(change.request_id) <= _LONGEST_REQUEST_ID,
        "request_id",
        f"{len(change.request_id)} characters; allowed: at most {_LONGEST_REQUEST_ID}",
    )
    violations.raise_if_any()
    assert amount is not None
    return amount
