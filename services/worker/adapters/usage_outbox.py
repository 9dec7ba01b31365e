"""Outboxes of a machine's workers: one folder each, with a lock as long as its worker lives."""

import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import structlog

from services.worker.adapters.file_lock import FileLock
from services.worker.adapters.usage_journal import FileJournal, JournalLimits, Sync, boot_id
from services.worker.adapters.usage_log import UsageReader, next_row
from services.worker.domain.usage_row import UsageRows

_log = structlog.get_logger(__name__)

_LOCK, _SOURCE = "lock", "source.json"
_REFUSED = "refused-"
_DAMAGED = ".damaged-"


@dataclass(frozen=True, slots=True)
class _Source:
    """What its rows are called where they are stored."""

    source: str
    base: int = 0  # number of the row that is the source's first
    boot: str = ""  # of the machine, when it began
    split: int | None = None  # rows from this one on will be of another source


class Outbox:
    """One folder: a journal that is written, or what is left of one; and the reading of it."""

    def __init__(self, folder: Path, limits: JournalLimits, sync: Sync) -> None:
        """Assign only; `begin` or `take_over` follows."""
        self.folder = folder
        self.journal = FileJournal(folder, limits, sync)
        self._lock = FileLock(folder / _LOCK)
        self._reader = UsageReader(folder)
        self._source = _Source("")

    def begin(self) -> None:
        """A new one, of this process. Raises OSError."""
        # It gets its name once it is locked: nobody takes over one that is being made.
        folder, hidden = self.folder, self.folder.with_name(f".{self.folder.name}")
        hidden.mkdir(mode=0o700, parents=True)
        self.folder = hidden
        try:
            self._lock = FileLock(hidden / _LOCK)
            self._lock.try_alone()
            self._name(_Source(secrets.token_hex(16), 0, boot_id()))
            hidden.rename(folder)
            self.folder = folder
            self.journal.create()
        except OSError:  # a full disk: what there is of it would only make that worse
            self.remove()
            raise

    def take_over(self) -> int | None:
        """What a process left that died; how many requests it had open. None: it lives, or another took it.

        Raises OSError.
        """
        if not self._lock.try_alone():
            return None
        if not (
            self.folder / _SOURCE
        ).exists():  # it died as it began, or another has sent all of it
            self.remove()
            return None
        self._source = _Source(**orjson.loads((self.folder / _SOURCE).read_bytes()))
        if self._source.boot != boot_id():
            # The machine may have lost rows that metering has: their numbers are not given to others. What the log
            # still has keeps its numbers, so that what metering has of it is not counted again.
            split, before = next_row(self.folder), self._source.split
            split = split if before is None else min(split, before)
            self._name(replace(self._source, boot=boot_id(), split=split))
        self._reader.split = self._source.split
        return self.journal.recover()

    @property
    def source(self) -> str:
        """The source that its rows are of."""
        return self._source.source

    def number(self, row: int) -> int:
        """The source's number of a row."""
        return row - self._source.base

    def row(self, number: int) -> int:
        """The row that has this number of the source."""
        return number + self._source.base

    def renew(self, row: int) -> None:
        """Rows from this one on are of another source, of which it is the first. Raises OSError."""
        split = self._source.split
        later = split if split is not None and row < split else None
        self._name(_Source(secrets.token_hex(16), row, self._source.boot, later))

    def read(self, most: int) -> UsageRows | None:
        """The next rows; None: there are none yet. Raises OSError."""
        rows = self._reader.read(most)
        split = self._source.split
        if rows is not None and split is not None and rows.first >= split:
            self.renew(rows.first)
        return rows

    def passed(self, taken: int) -> None:
        """What was read last is stored, as all rows before `taken` are."""
        self._reader.passed()
        self.journal.taken(taken)

    def set_aside(self, rows: UsageRows) -> None:
        """Keep what the store will never take, for people. Raises OSError."""
        kept = self.folder.parent / f"{_REFUSED}{self.source}-{rows.first}"
        subjects = {str(number): subject for number, subject in rows.subjects.items()}
        kept.with_suffix(".json").write_bytes(orjson.dumps(subjects))
        kept.with_suffix(".rows").write_bytes(rows.rows.tobytes())

    def put_away(self) -> None:
        """Keep for people what can't be read at all: nobody looks at it again. Raises OSError."""
        self.let_go()
        self.folder.rename(self.folder.with_name(f"{_DAMAGED}{self.folder.name}"))

    def let_go(self) -> None:
        """What could not be taken over: others may try."""
        self.journal.close_log()
        self._lock.release()

    def leave(self) -> None:
        """In order: what is not sent is taken over by another."""
        self.journal.close()
        self._lock.release()

    def remove(self) -> None:
        """All of it was sent."""
        self.journal.close_log()
        with suppress(FileNotFoundError):
            (self.folder / _SOURCE).unlink()  # nobody takes over what is half removed
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def _name(self, source: _Source) -> None:
        fresh = self.folder / f"{_SOURCE}.new"
        with fresh.open("wb") as file:
            file.write(orjson.dumps(source))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.folder / _SOURCE)
        self._source = source


class Outboxes:
    """Those of this machine's workers, in one folder."""

    def __init__(self, folder: Path, limits: JournalLimits, sync: Sync) -> None:
        """Assign only."""
        self._folder = folder
        self._limits = limits
        self._sync = sync
        self._held: set[Path] = set()  # of this process

    def own(self) -> Outbox:
        """A new one. Raises OSError."""
        outbox = Outbox(self._folder / secrets.token_hex(8), self._limits, self._sync)
        outbox.begin()
        self._held.add(outbox.folder)
        return outbox

    def dead(self) -> list[Outbox]:
        """Those that no process holds; this one holds them from now on."""
        taken = []
        try:
            folders = sorted(path for path in self._folder.iterdir() if path.is_dir())
        except OSError as error:  # too many open files: it is looked again
            _log.warning("who died is not known", reason=str(error))
            return []
        for folder in folders:
            if folder in self._held or folder.name.startswith("."):
                continue
            outbox = Outbox(folder, self._limits, self._sync)
            if self._take_over(outbox):
                self._held.add(folder)
                taken.append(outbox)
        return taken

    def _take_over(self, outbox: Outbox) -> bool:
        name = outbox.folder.name
        try:
            aborted = outbox.take_over()
        except OSError as error:  # it may work the next time, or elsewhere
            outbox.let_go()
            _log.error("an outbox can't be taken over", outbox=name, reason=str(error))
            return False
        except (ValueError, TypeError) as error:
            return self._put_away(outbox, error)
        if aborted is not None:
            _log.warning("took over an outbox", outbox=name, aborted=aborted)
        return aborted is not None

    def _put_away(self, outbox: Outbox, error: Exception) -> bool:
        name = outbox.folder.name
        try:
            outbox.put_away()
        except OSError as problem:  # the next look meets it again
            _log.error("a damaged outbox can't be put away", outbox=name, reason=str(problem))
        else:
            _log.error(
                "an outbox is damaged and was put away: what it holds is not counted",
                outbox=f"{_DAMAGED}{name}",
                reason=str(error),
            )
        return False
