"""Counts requests in files: a table of those that are open, a log of those that have ended.

A row is written in its slot of the table when its request is admitted, and completed there when that ends; then it has
its number. Many rows are appended to the log together, and only then are their slots free. So whenever the process
dies, each row is in the log, or in the table, or in both with the same number.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from services.rpc.errors import UnavailableError
from services.worker.adapters.usage_log import UsageLog
from services.worker.adapters.usage_subjects import UsageSubjects
from services.worker.adapters.usage_table import UsageTable
from services.worker.domain.usage_row import (
    BYTES_WORD,
    COMPUTE_WORD,
    DURATION_WORD,
    ENDING,
    ENDING_AT,
    FIRST_ENDED,
    FREE,
    OPEN,
    OPENING,
    OPENING_AT,
    OUTCOME_WORD,
    QUEUE_WORD,
    ROW_BYTES,
    START_WORD,
    TOKENS_WORD,
    Ended,
    Opened,
    Outcome,
    UsageSubject,
)
from services.worker.domain.waiting import RunShare
from services.worker.ports.usage import AnsweredCall, Slot

_log = structlog.get_logger(__name__)

Sync = Literal["always", "interval", "never"]

_FLUSH_SECONDS = 0.1  # rows wait for others at most, before they are appended
_MOST_ENDED = 4096  # that wait for it
_OUTCOME_AT = 8 * OUTCOME_WORD
# As a word: its other bytes are zero.
_OK = int.from_bytes(bytes((Outcome.OK, 0, 0, 0, 0, 0, 0, 0)), sys.byteorder)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """How large its files get."""

    slots: int = 32_768  # requests at once: 4 MiB
    subjects: int = 4096  # of requests at once: 4 MiB
    log_bytes: int = 1024**3  # of rows that metering has not taken
    segment_bytes: int = 4 * 1024**2

    @property
    def most_in_segment(self) -> int:
        """So that a small log has several."""
        return min(self.segment_bytes, max(self.log_bytes // 8, 1))


class FileJournal:
    """UsageJournal in a folder; one event loop, but `sync` may run in a thread."""

    def __init__(self, folder: Path, limits: JournalLimits, sync: Sync) -> None:
        """Assign only; `create` or `recover` follows."""
        self._folder = folder
        self._limits = limits
        self._is_strict = sync == "always"
        self._table = UsageTable(folder / "open.table")
        self._subjects = UsageSubjects(folder / "open.subjects")
        self._log = UsageLog(folder, limits.most_in_segment)
        self._free: list[Slot] = []
        self._ended: list[Slot] = []  # slots, in the order of their rows' numbers
        self._told: dict[int, bytes] = {}  # by the row's number
        self._next = 0  # number of the next row that ends
        self._refusal: UnavailableError | None = None
        self._flushing: asyncio.Handle | None = None
        self._unsynced = False
        self.epoch = 0
        self.flushed = asyncio.Event()  # set when rows were appended

    def create(self) -> None:
        """A new one. Raises OSError if the disk has no room."""
        self._log.open()
        self._table.create(self._limits.slots)
        self._subjects.create(self._limits.subjects)
        self._free = [Slot(slot) for slot in self._table.slots()]
        self._next = self._log.next

    def recover(self) -> int:
        """Complete what a process left that died, and keep only the log; how many requests it had not ended.

        Doing it again, after dying in the midst of it, is harmless. Raises OSError.
        """
        self._log.open()
        aborted = self._complete() if self._open_left() else 0
        self._remove_table()
        return aborted

    def subject(self, subject: UsageSubject) -> int:
        """See `UsageJournal`."""
        number = self._subjects.number(subject)
        if number is None:
            self.flush()
            rows = [self._table.row(slot) for slot, _ in self._table.used()]
            self._subjects.forget({int.from_bytes(row[32:36], "little") for row in rows})
            self.epoch += 1
            number = self._subjects.number(subject)
        if number is None:
            raise _full("USAGE_TABLE_FULL", "requests of too many callers are open at once")
        return number

    def open(self, opened: Opened) -> Slot:
        """See `UsageJournal`."""
        if self._refusal is not None:
            raise self._refusal
        if not self._free:
            self._make_room()
        slot = self._free.pop()
        table = self._table
        request_id, subject, part, *counts = opened
        OPENING.pack_into(
            table.map, slot + OPENING_AT, request_id, time.time_ns(), subject, part, *counts, 0
        )
        table.words[slot >> 3] = OPEN
        return slot

    def open_call(
        self, subject: int, request_id: bytes, attempt: int, rows: int, size: int
    ) -> Slot:
        """See `UsageJournal`."""
        if self._refusal is not None:
            raise self._refusal
        if not self._free:
            self._make_room()
        slot, table = self._free.pop(), self._table
        OPENING.pack_into(
            table.map,
            slot + OPENING_AT,
            request_id,
            time.time_ns(),
            subject,
            0,
            attempt,
            0,
            rows,
            size,
            0,
        )
        table.words[slot >> 3] = OPEN
        return slot

    def cancel(self, slot: Slot) -> None:
        """See `UsageJournal`."""
        self._table.words[slot >> 3] = FREE
        self._free.append(slot)

    def deliver(self, slot: Slot, output_tokens: int, response_bytes: int) -> None:
        """See `UsageJournal`."""
        words, first = self._table.words, slot >> 3
        words[first + TOKENS_WORD] = output_tokens
        words[first + BYTES_WORD] = response_bytes

    def end(self, slot: Slot, ended: Ended, told: bytes = b"") -> None:
        """See `UsageJournal`."""
        if told:
            self._told[self._next] = told
        self.end_all((slot,), (ended,))

    def end_all(self, slots: Sequence[Slot], ended: Sequence[Ended]) -> None:
        """See `UsageJournal`."""
        table_map, words, number = self._table.map, self._table.words, self._next
        pack = ENDING.pack_into
        for slot, how in zip(slots, ended, strict=True):
            duration, outcome, queue, compute, cached, tokens, size, from_cache, preempted = how
            pack(
                table_map,
                slot + ENDING_AT,
                duration,
                queue,
                compute,
                cached,
                tokens,
                size,
                outcome,
                from_cache,
                0,
                preempted,
            )
            words[slot >> 3] = FIRST_ENDED + number
            number += 1
        self._next = number
        self._ended += slots
        self._see_to_ended()

    def end_calls(self, calls: Sequence[AnsweredCall], run: RunShare, now: float) -> None:
        """See `UsageJournal`. What `open_call` left zero stays so."""
        words, number, ended = self._table.words, self._next, self._ended
        started, per_row = run.started, run.of(1)
        for slot, arrived, rows, size in calls:
            first = slot >> 3
            words[first + DURATION_WORD] = int((now - arrived) * 1e9)
            words[first + QUEUE_WORD] = int((started - arrived) * 1e9)
            words[first + COMPUTE_WORD] = per_row * rows
            words[first + BYTES_WORD] = size
            words[first + OUTCOME_WORD] = _OK  # and neither cached nor preempted
            words[first] = FIRST_ENDED + number
            number += 1
            ended.append(slot)
        self._next = number
        self._see_to_ended()

    def flush(self) -> None:
        """Append what has ended; where the disk has no room it stays in the table, and no more is admitted."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._ended:
            try:
                self._append()
            except OSError as error:
                self._refuse(_full("USAGE_DISK_FULL", f"usage can't be stored: {error.strerror}"))
                return
        if self._log.size > self._limits.log_bytes:
            text = f"{self._log.size} bytes of usage wait for metering; allowed: {self._limits.log_bytes}"
            self._refuse(_full("USAGE_OUTBOX_FULL", text))
        else:
            self._refuse(None)

    def sync(self) -> None:
        """What was flushed survives the machine afterwards. Raises OSError."""
        if self._unsynced:
            self._unsynced = False  # first: what is appended meanwhile is for the next time
            try:
                self._log.sync()
            except OSError:
                self._unsynced = True
                raise

    def see(self) -> None:
        """The process lives; and what could not be done before is tried again."""
        self._table.see(time.time_ns())
        if self._refusal is not None:
            self.flush()

    def taken(self, number: int) -> None:
        """Metering has the rows before this one."""
        self._log.drop_before(number)
        if self._refusal is not None:
            self.flush()

    @property
    def is_taken(self) -> bool:
        """Whether no row is left that was not appended."""
        return not self._ended and len(self._free) == self._limits.slots

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self._log.size

    @property
    def next(self) -> int:
        """Number of the row that will be appended next."""
        return self._log.next

    @property
    def open_requests(self) -> int:
        """Slots in use."""
        return self._limits.slots - len(self._free) - len(self._ended)

    @property
    def is_refusing(self) -> bool:
        """Whether no request is admitted."""
        return self._refusal is not None

    def close_log(self) -> None:
        """After `recover`."""
        self._log.close()

    def close(self) -> None:
        """After `create`: what is still open is left as `recover` needs it."""
        if self._flushing is not None:
            self._flushing.cancel()
        self.close_log()
        self._table.close()
        self._subjects.close()

    def _see_to_ended(self) -> None:
        if self._is_strict:
            self._store()
        elif len(self._ended) >= _MOST_ENDED:
            self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def _store(self) -> None:
        """All the way to the disk, before the answer leaves."""
        self.flush()
        try:
            self.sync()
        except OSError as error:
            self._refuse(_full("USAGE_DISK_FULL", f"usage can't be stored: {error.strerror}"))

    def _append(self) -> None:
        table, ended = self._table, self._ended
        rows = b"".join([table.map[slot : slot + ROW_BYTES] for slot in ended])
        self._log.append(rows, self._subjects, self._told)
        self._ended, self._told, self._unsynced = [], {}, True
        words = table.words
        for slot in ended:
            words[slot >> 3] = FREE
        self._free += ended
        self.flushed.set()

    def _make_room(self) -> None:
        self.flush()
        if not self._free:
            raise _full(
                "USAGE_TABLE_FULL", f"{self._limits.slots} requests are open; allowed: as many"
            )

    def _refuse(self, why: UnavailableError | None) -> None:
        if (self._refusal is None) != (why is None):
            if why is not None:
                _log.error("requests are refused, since they can't be counted", reason=why.message)
            else:
                _log.info("requests are admitted again")
        self._refusal = why

    def _open_left(self) -> bool:
        """The table that a process left; False: it had none yet, or all of it is in the log."""
        try:
            self._subjects.open()
            self._table.open()
        except (FileNotFoundError, ValueError) as error:
            if isinstance(error, ValueError):  # damaged, or never finished
                _log.warning("what a worker had open can't be read", reason=str(error))
            return False
        return True

    def _complete(self) -> int:
        """Give numbers to requests that had not ended, and append what is not in the log."""
        table, left = self._table, []
        opened = []
        for slot, state in table.used():
            if state == OPEN:
                opened.append(slot)
            elif state - FIRST_ENDED >= self._log.next:
                left.append((state, slot))
        self._ended = [Slot(slot) for _, slot in sorted(left)]
        self._next = self._log.next + len(self._ended)
        for number, slot in enumerate(self._ended, self._log.next):
            table.words[slot >> 3] = FIRST_ENDED + number  # the same, but after a fault of the disk
        for slot in opened:
            self._abort(slot)
        if self._ended:
            self._append()
            self._log.sync()
        table.close()
        self._subjects.close()
        return len(opened)

    def _abort(self, slot: int) -> None:
        """What had been delivered stays."""
        table, first = self._table, slot >> 3
        started = table.words[first + START_WORD]
        table.words[first + DURATION_WORD] = max(0, table.seen_ns - started)
        table.map[slot + _OUTCOME_AT] = Outcome.ABORTED
        table.words[first] = FIRST_ENDED + self._next
        self._next += 1
        self._ended.append(Slot(slot))

    def _remove_table(self) -> None:
        for name in ("open.table", "open.subjects"):
            (self._folder / name).unlink(missing_ok=True)


def _full(reason: str, message: str) -> UnavailableError:
    return UnavailableError(message, reason=reason, retry_after=1.0)


def boot_id() -> str:
    """Of this start of the machine; empty where none is told."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
