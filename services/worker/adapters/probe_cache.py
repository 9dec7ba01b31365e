"""What trying versions showed, kept on disk: a worker that starts again, or a second one here, need not try them again.

A result holds for one artifact with its settings on one kind of machine, with this code and one release of the runtime.
Failures are not kept. Results that a worker used which then died without an end of its own are forgotten: a model that
kills its process is tried in a child before it gets into a worker again.
"""

import asyncio
import dataclasses
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import structlog
from pydantic import TypeAdapter, ValidationError

from services.worker.adapters.file_lock import FileLock
from services.worker.domain.assignment import VersionSpec
from services.worker.ports.session import Probe, ProbeReport

_log = structlog.get_logger(__name__)

_REPORT = TypeAdapter(ProbeReport)
_KEPT_SECONDS = 30 * 24 * 3600  # unused
_FRESH_SECONDS = 1  # two workers that hear of one wish at once are to share what is measured; a later wish is not


class CachedProbe:
    """Probe that remembers good reports in a folder that all workers of a machine share."""

    def __init__(self, probe: Probe, root: Path, machine: str, owner: str) -> None:
        """Assign only.

        Args:
            probe: tries what is not known.
            root: made if it isn't there.
            machine: everything about machine, runtime and settings that results depend on.
            owner: this worker's id.
        """
        self._probe = probe
        self._root = root
        self._machine = machine
        self._used = root / f"{owner}.used"
        self._alive = FileLock(self._used)
        self._begun = False

    async def examine(self, spec: VersionSpec, folder: Path) -> ProbeReport:
        """What is known of the version; else have it tried, once however many ask. Raises LoadError."""
        key = self._key(spec)
        measures = spec.settings.auto_tune and spec.tuning is None
        since = time.time() - _FRESH_SECONDS if measures else 0.0
        async with self._alone(key):
            report = await asyncio.to_thread(self._read, key, since)
            if report is not None:
                _log.info("version was tried before", version=str(spec.name))
                return report
            report = await self._probe.examine(spec, folder)
            await asyncio.to_thread(self._write, key, report)
            return report

    def close(self) -> None:
        """The worker ends in order: what it used stays good."""
        if self._begun:
            self._used.unlink(missing_ok=True)
            self._alive.release()
            self._begun = False

    def _key(self, spec: VersionSpec) -> str:
        facts = {
            "machine": self._machine,
            "digest": spec.digest,
            "inputs": [str(tensor) for tensor in spec.signature.inputs],
            "outputs": [str(tensor) for tensor in spec.signature.outputs],
            "settings": dataclasses.asdict(spec.settings),
            "tuning": spec.tuning and dataclasses.asdict(spec.tuning),
        }
        text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(text).hexdigest()

    def _begin(self) -> None:
        """Once: forget what is old, and what those used that died."""
        if self._begun:
            return
        self._root.mkdir(0o700, parents=True, exist_ok=True)
        for used in self._root.glob("*.used"):
            self._forget_if_dead(used)
        oldest = time.time() - _KEPT_SECONDS
        for path in self._root.iterdir():
            with suppress(FileNotFoundError):  # another worker does the same
                if path.suffix in {".json", ".lock"} and path.stat().st_mtime < oldest:
                    path.unlink()
        self._begun = self._alive.try_alone()

    def _forget_if_dead(self, used: Path) -> None:
        lock = FileLock(used)
        if not lock.try_alone():
            return
        try:
            for key in used.read_text().split():
                self._result(key).unlink(missing_ok=True)
                _log.warning("a worker died with it: the version is tried again", key=key)
            used.unlink(missing_ok=True)
        finally:
            lock.release()

    @asynccontextmanager
    async def _alone(self, key: str) -> AsyncIterator[None]:
        """While others wait that ask for the same."""
        lock = FileLock(self._root / f"{key}.lock")
        locking = asyncio.ensure_future(asyncio.to_thread(self._begin_alone, lock))
        try:
            await asyncio.shield(locking)
            yield
        finally:
            # A thread that still waits cannot be stopped: it lets go once it has the lock.
            locking.add_done_callback(lambda _: lock.release())

    def _begin_alone(self, lock: FileLock) -> None:
        """A disk that cannot be written keeps nothing, and stops nothing."""
        try:
            self._begin()
            lock.alone()
        except OSError as error:
            _log.warning("results of trying versions are not kept", error=str(error))

    def _read(self, key: str, since: float) -> ProbeReport | None:
        path = self._result(key)
        try:
            report = _REPORT.validate_json(path.read_bytes())
            if path.stat().st_mtime < since:
                return None  # measuring is wanted anew
            if not since:
                os.utime(path)  # what is used is kept
            self._note_use(key)
        except (OSError, ValidationError):  # not there, or written by something else
            return None
        return report

    def _write(self, key: str, report: ProbeReport) -> None:
        path = self._result(key)
        made = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._note_use(key)
            made.write_bytes(orjson.dumps(dataclasses.asdict(report)))
            made.rename(path)

    def _note_use(self, key: str) -> None:
        with self._used.open("a") as out:
            out.write(f"{key}\n")

    def _result(self, key: str) -> Path:
        return self._root / f"{key}.json"
