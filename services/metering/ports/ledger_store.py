"""Where the ledger is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.metering.domain.ledger import Entry, EntryKind, Posting
from services.metering.domain.usage import Subject
from services.metering.domain.verification import Verification


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with its postings, what they are about, and its hash."""

    entry: Entry
    postings: Sequence[Posting]
    subjects: Mapping[int, Subject]
    hash: bytes


class LedgerStore(Protocol):
    """An append-only chain of entries. What was appended is durable when it returns."""

    async def append(self, entry: Entry, postings: Sequence[Posting]) -> StoredEntry:
        """Append an entry under the next number. With a request key that is known: the entry there is.

        AlreadyExistsError if that one says something else.
        """
        ...

    async def get(self, number: int) -> StoredEntry | None:
        """One entry."""
        ...

    async def entries(
        self, account_prefix: str, kind: EntryKind | None, before: int, most: int
    ) -> Sequence[StoredEntry]:
        """The newest entries under a number (0: of all), at most so many.

        Args:
            account_prefix: only those with a posting on such an account; empty: all.
            kind: only of this kind; None: all.
            before: only those with a smaller number; 0: all.
            most: how many.
        """
        ...

    async def balances(self, account_prefix: str) -> Mapping[str, int]:
        """Sums of the accounts whose names begin so."""
        ...

    async def verify(self, known_number: int, known_hash: bytes) -> Verification:
        """Look whether everything adds up; also the history up to an entry that was noted (0: none)."""
        ...
