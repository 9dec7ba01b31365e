"""Outboxes of a machine's workers: whoever finds one whose worker died sends what is left, once."""

import errno
from pathlib import Path
from typing import Any

import pytest

from services.worker.adapters.usage_journal import FileJournal
from services.worker.adapters.usage_outbox import Outbox, Outboxes
from services.worker.domain.usage_row import Ended, Outcome
from tests.unit.worker.adapters.test_usage_journal import SMALL, begin


@pytest.fixture
def outboxes(tmp_path: Path) -> Outboxes:
    return Outboxes(tmp_path / "usage", SMALL, "interval")


async def test_an_outbox_is_taken_over_once_its_worker_is_dead(
    outboxes: Outboxes, tmp_path: Path
) -> None:
    """While it lives nobody takes it; afterwards one does, and it keeps its source."""
    mine = outboxes.own()
    begin(mine.journal, 1)
    others = [Outboxes(tmp_path / "usage", SMALL, "interval") for _ in range(2)]
    assert [other.dead() for other in others] == [[], []]
    mine.leave()
    taken = [outbox for other in others for outbox in other.dead()]
    assert [outbox.source for outbox in taken] == [mine.source]
    rows = taken[0].read(10)
    assert rows is not None
    assert [int(o) for o in rows.rows["outcome"]] == [Outcome.ABORTED]
    taken[0].remove()
    assert not list((tmp_path / "usage").iterdir())


async def test_after_a_start_of_the_machine_what_is_appended_is_of_another_source(
    outboxes: Outboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log has keeps its numbers, for metering may have it; numbers that the disk lost get no other rows."""
    mine = outboxes.own()
    source, late = mine.source, begin(mine.journal, 7)
    for number in range(3):
        mine.journal.end(begin(mine.journal, number), Ended(1, Outcome.OK))
    mine.journal.flush()
    mine.leave()
    assert late
    monkeypatch.setattr("services.worker.adapters.usage_outbox.boot_id", lambda: "another")
    (taken,) = Outboxes(tmp_path / "usage", SMALL, "interval").dead()
    assert isinstance(taken, Outbox)
    assert told(taken) == (source, 0, [Outcome.OK] * 3)
    fresh, first, outcomes = told(taken)
    assert fresh != source
    assert (first, outcomes) == (0, [Outcome.ABORTED])
    assert taken.read(10) is None
    taken.remove()


def told(outbox: Outbox) -> tuple[str, int, list[int]]:
    """Source, number there and outcomes of what is to be sent next, which is passed."""
    rows = outbox.read(10)
    assert rows is not None
    outbox.passed(rows.next)
    return outbox.source, outbox.number(rows.first), [int(o) for o in rows.rows["outcome"]]


async def test_what_cannot_be_taken_over_now_is_left_to_others(
    outboxes: Outboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, say: the next look takes it, whoever looks."""
    mine = outboxes.own()
    begin(mine.journal, 1)
    mine.leave()
    other = Outboxes(tmp_path / "usage", SMALL, "interval")
    with monkeypatch.context() as patched:
        patched.setattr(
            FileJournal, "recover", lambda self: (_ for _ in ()).throw(OSError(28, "full"))
        )
        assert other.dead() == []
    (taken,) = Outboxes(tmp_path / "usage", SMALL, "interval").dead()
    assert taken.read(10) is not None
    taken.remove()


async def test_an_outbox_that_is_being_made_is_nobody_elses(
    outboxes: Outboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks while a worker starts takes nothing of its."""
    looks: list[object] = []
    name = Outbox._name

    def looked_at(self: Outbox, source: Any) -> None:
        looks.append(Outboxes(tmp_path / "usage", SMALL, "interval").dead())
        name(self, source)
        looks.append(Outboxes(tmp_path / "usage", SMALL, "interval").dead())

    monkeypatch.setattr(Outbox, "_name", looked_at)
    mine = outboxes.own()
    begin(mine.journal, 1)
    assert looks == [[], []]
    mine.leave()


async def test_an_outbox_that_cannot_be_made_leaves_nothing(
    outboxes: Outboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk each try would make it fuller."""

    def full(_: FileJournal) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FileJournal, "create", full)
        with pytest.raises(OSError, match="No space left"):
            outboxes.own()
    assert not list((tmp_path / "usage").iterdir())
    assert outboxes.own().source  # there is room again


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"source": "s", "unknown": 1}'])
async def test_an_outbox_whose_name_is_damaged_is_put_away(
    outboxes: Outboxes, tmp_path: Path, said: bytes
) -> None:
    """It is kept for people, and looked at once."""
    mine = outboxes.own()
    begin(mine.journal, 1)
    mine.leave()
    (mine.folder / "source.json").write_bytes(said)
    other = Outboxes(tmp_path / "usage", SMALL, "interval")
    assert other.dead() == []
    (kept,) = (tmp_path / "usage").iterdir()
    assert kept.name == f".damaged-{mine.folder.name}"
    assert (kept / "open.table").exists()
    assert other.dead() == []
