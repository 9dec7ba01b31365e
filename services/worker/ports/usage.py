"""Where requests are counted so that it outlives this process."""

from collections.abc import Sequence
from typing import NewType, Protocol

from services.worker.domain.usage_row import Ended, Opened, UsageRows, UsageSubject
from services.worker.domain.waiting import RunShare

Slot = NewType("Slot", int)
# Slot, when it came by the monotonic clock, rows, bytes of the answer.
AnsweredCall = tuple[Slot, float, int, int]


class UsageJournal(Protocol):
    """One row for each request that was opened and not cancelled, whatever becomes of this process.

    Used on the event loop. What a call has stored when it returns survives the death of the process; how much of it
    survives that of the machine is a setting.
    """

    @property
    def epoch(self) -> int:
        """Grows whenever numbers of subjects may mean something else."""
        ...

    def subject(self, subject: UsageSubject) -> int:
        """Its number, good until the epoch changes. Raises UnavailableError if too many are in use."""
        ...

    def open(self, opened: Opened) -> Slot:
        """A request is admitted. Raises UnavailableError while no more can be counted."""
        ...

    def open_call(
        self, subject: int, request_id: bytes, attempt: int, rows: int, size: int
    ) -> Slot:
        """`open` for a call of one request without tokens; there are many."""
        ...

    def cancel(self, slot: Slot) -> None:
        """It was not admitted after all: no row."""
        ...

    def deliver(self, slot: Slot, output_tokens: int, response_bytes: int) -> None:
        """So much in all is about to be handed to the edge."""
        ...

    def end(self, slot: Slot, ended: Ended, told: bytes = b"") -> None:
        """It has ended; before its answer, or the last of it, is handed over. `told`: an encoded UsageTelemetry."""
        ...

    def end_all(self, slots: Sequence[Slot], ended: Sequence[Ended]) -> None:
        """The same of several."""
        ...

    def end_calls(self, calls: Sequence[AnsweredCall], run: RunShare, now: float) -> None:
        """Requests of `open_call` that shared a run have ended well."""
        ...


class UsageGapError(Exception):
    """Metering wants rows that this outbox has no longer: it lost what it had stored."""

    def __init__(self, next_number: int) -> None:
        super().__init__(f"rows from {next_number} on are wanted")
        self.next = next_number


class UsageStoreError(Exception):
    """Metering could not be reached, or can't store now: it is to be tried again."""


class UsageRefusedError(Exception):
    """Metering will never take these rows."""


class UsageStore(Protocol):
    """Where rows go in the end."""

    async def record(self, source: str, first: int, rows: UsageRows) -> int:
        """Store rows, the first of which has this number; the number that is wanted next.

        Sending them again is harmless. Raises UsageGapError, UsageStoreError, UsageRefusedError.
        """
        ...


class UsageOutbox(Protocol):
    """Rows on their way to the store; those of one process, or of one that died."""

    @property
    def source(self) -> str:
        """The source that its rows are of."""
        ...

    def number(self, row: int) -> int:
        """The source's number of a row."""
        ...

    def row(self, number: int) -> int:
        """The row that has this number of the source."""
        ...

    def renew(self, row: int) -> None:
        """Rows from this one on are of another source, of which it is the first. Raises OSError."""
        ...

    def read(self, most: int) -> UsageRows | None:
        """The rows after those passed; None: there are none yet. May run in a thread. Raises OSError."""
        ...

    def passed(self, taken: int) -> None:
        """What was read last is stored, as all rows before `taken` are."""
        ...

    def set_aside(self, rows: UsageRows) -> None:
        """Keep what the store will never take, for people. Raises OSError."""
        ...

    def remove(self) -> None:
        """All of it is stored."""
        ...


class UsageFolder(Protocol):
    """The outboxes of this machine's workers."""

    def dead(self) -> Sequence[UsageOutbox]:
        """Those of workers that died, from now on this process's. Files are read: may run in a thread."""
        ...


class UsageFiles(Protocol):
    """Files of a journal."""

    def see(self) -> None:
        """The process lives; and what could not be done before is tried again."""
        ...

    def sync(self) -> None:
        """What was appended survives the machine afterwards. May run in a thread. Raises OSError."""
        ...
