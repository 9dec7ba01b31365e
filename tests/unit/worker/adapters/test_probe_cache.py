"""What trying versions showed is known to the next worker, and to one beside."""

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest

from services.worker.adapters.probe_cache import CachedProbe
from services.worker.domain.assignment import RunSettings, Tuning, VersionSpec
from services.worker.domain.load_state import LoadError
from services.worker.ports.session import ProbeReport
from tests.models import good
from tests.unit.worker.specs import spec_of_model

SPEC = spec_of_model(good.affine(2.0))
AUTO = dataclasses.replace(SPEC, settings=RunSettings(auto_tune=True))
GOOD = ProbeReport(True, "", True, "not masked", ("odd",))
TUNED = dataclasses.replace(
    GOOD,
    tuning=Tuning(
        intra_op_threads=1,
        instances=2,
        max_batch_size=8,
        rows_per_second=2.0,
        baseline_rows_per_second=1.0,
        machine_cpus=2,
    ),
)


class Counting:
    """A probe that tells how often it was asked, and may be held up."""

    def __init__(self, report: ProbeReport | LoadError = GOOD) -> None:
        self.asked = 0
        self.report = report
        self.go = asyncio.Event()
        self.go.set()

    async def examine(self, spec: VersionSpec, folder: Path) -> ProbeReport:
        self.asked += 1
        await self.go.wait()
        if isinstance(self.report, LoadError):
            raise self.report
        return self.report


class Workers:
    """Some on one machine, over one probe."""

    def __init__(self, folder: Path, report: ProbeReport | LoadError = GOOD) -> None:
        self.folder = folder / "probes"
        self.inner = Counting(report)
        self._count = 0

    def start(self, machine: str = "this") -> CachedProbe:
        self._count += 1
        return CachedProbe(self.inner, self.folder, machine, f"w{self._count}")


async def test_a_good_report_is_known_after_a_restart(tmp_path: Path) -> None:
    """Each field comes back; the version is tried once."""
    workers = Workers(tmp_path)
    first = workers.start()
    assert await first.examine(SPEC, tmp_path) == GOOD
    first.close()
    assert await workers.start().examine(SPEC, tmp_path) == GOOD
    assert workers.inner.asked == 1


@pytest.mark.parametrize(
    ("spec", "machine"),
    [
        pytest.param(SPEC, "other", id="another machine, runtime, code"),
        pytest.param(spec_of_model(good.affine(3.0)), "this", id="another artifact"),
        pytest.param(
            dataclasses.replace(SPEC, settings=RunSettings(max_batch_size=3)), "this", id="settings"
        ),
        pytest.param(dataclasses.replace(SPEC, tuning=TUNED.tuning), "this", id="tuning"),
    ],
)
async def test_what_differs_is_tried_by_itself(
    tmp_path: Path, spec: VersionSpec, machine: str
) -> None:
    """A result holds for what it was found with."""
    workers = Workers(tmp_path)
    await workers.start().examine(SPEC, tmp_path)
    await workers.start(machine).examine(spec, tmp_path)
    assert workers.inner.asked == 2


async def test_failures_are_tried_again(tmp_path: Path) -> None:
    """They may have been of memory or time."""
    workers = Workers(tmp_path, LoadError("no memory"))
    probe = workers.start()
    for _ in range(2):
        with pytest.raises(LoadError, match="no memory"):
            await probe.examine(SPEC, tmp_path)
    assert workers.inner.asked == 2


async def test_workers_that_begin_together_try_once(tmp_path: Path) -> None:
    """The second waits for the first, and has what it found; what was measured too."""
    workers = Workers(tmp_path, TUNED)
    workers.inner.go.clear()
    first = asyncio.create_task(workers.start().examine(SPEC, tmp_path))
    second = asyncio.create_task(workers.start().examine(SPEC, tmp_path))
    while not workers.inner.asked:  # noqa: ASYNC110 - threads take the lock
        await asyncio.sleep(0)
    workers.inner.go.set()
    assert await first == await second == TUNED
    assert workers.inner.asked == 1


async def test_who_no_longer_waits_lets_go(tmp_path: Path) -> None:
    """A version that is released while it waits does not keep others from it."""
    workers = Workers(tmp_path)
    workers.inner.go.clear()
    probe = workers.start()
    first = asyncio.create_task(probe.examine(SPEC, tmp_path))
    while not workers.inner.asked:  # noqa: ASYNC110 - threads take the lock
        await asyncio.sleep(0)
    second = asyncio.create_task(workers.start().examine(SPEC, tmp_path))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    workers.inner.go.set()
    await first
    async with asyncio.timeout(10):
        assert await workers.start().examine(SPEC, tmp_path) == GOOD


async def test_what_was_measured_long_ago_is_measured_again(tmp_path: Path) -> None:
    """The registry doesn't have it: somebody wants it anew; also if nothing could be measured then."""
    workers = Workers(tmp_path, TUNED)
    await workers.start().examine(AUTO, tmp_path)
    (kept,) = workers.folder.glob("*.json")
    os.utime(kept, (kept.stat().st_mtime - 2,) * 2)
    workers.inner.report = GOOD
    await workers.start().examine(AUTO, tmp_path)
    assert workers.inner.asked == 2
    os.utime(kept, (kept.stat().st_mtime - 2,) * 2)
    await workers.start().examine(AUTO, tmp_path)
    assert workers.inner.asked == 3


async def test_a_worker_that_died_with_a_version_has_it_tried_again(tmp_path: Path) -> None:
    """One that ended in order, or lives, does not."""
    workers = Workers(tmp_path)
    alive = workers.start()
    await alive.examine(SPEC, tmp_path)
    await workers.start().examine(SPEC, tmp_path)
    assert workers.inner.asked == 1
    alive._alive.release()  # as the kernel does when a process dies
    await workers.start().examine(SPEC, tmp_path)
    assert workers.inner.asked == 2


async def test_a_broken_file_or_folder_costs_a_try(tmp_path: Path) -> None:
    """It is never a reason not to load."""
    workers = Workers(tmp_path)
    await workers.start().examine(SPEC, tmp_path)
    (kept,) = workers.folder.glob("*.json")
    kept.write_bytes(b"{")
    assert await workers.start().examine(SPEC, tmp_path) == GOOD
    assert workers.inner.asked == 2
    workers.folder = tmp_path / "a file"
    workers.folder.write_bytes(b"")
    assert await workers.start().examine(SPEC, tmp_path) == GOOD
