"""Usage in files: each request is counted once, whenever the process dies and wherever its files are cut."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.rpc.errors import UnavailableError
from services.worker.adapters import usage_log
from services.worker.adapters.usage_journal import FileJournal, JournalLimits, Sync
from services.worker.adapters.usage_log import UsageReader
from services.worker.domain.usage_row import Ended, Opened, Outcome, UsageRows, UsageSubject
from services.worker.ports.usage import Slot

SMALL = JournalLimits(slots=64, subjects=8, log_bytes=1 << 20, segment_bytes=2048)
ALICE = UsageSubject("alice", "k1", "e", "models/m/versions/1", "ab" * 32)


def ident(number: int) -> bytes:
    return number.to_bytes(16, "big")


def made(folder: Path, limits: JournalLimits = SMALL, sync: Sync = "interval") -> FileJournal:
    folder.mkdir(parents=True, exist_ok=True)
    journal = FileJournal(folder, limits, sync)
    journal.create()
    return journal


def begin(journal: FileJournal, number: int, subject: UsageSubject = ALICE) -> Slot:
    return journal.open(Opened(ident(number), journal.subject(subject), 3, 2, 5, 7, 11))


def all_rows(folder: Path) -> list[UsageRows]:
    reader, found = UsageReader(folder), []
    while (rows := reader.read(10)) is not None:
        found.append(rows)
        reader.passed()
    return found


def by_ident(folder: Path) -> dict[int, list[tuple[int, int, str]]]:
    """Outcome, output tokens and project of each row, by request; numbers follow each other without a gap."""
    found: dict[int, list[tuple[int, int, str]]] = {}
    following = None
    for rows in all_rows(folder):
        assert following is None or rows.first == following
        following = rows.next
        for row in rows.rows:
            number = int.from_bytes(bytes(row["request_id"]), "big")
            told = (
                int(row["outcome"]),
                int(row["output_tokens"]),
                rows.subjects[row["subject"]].project,
            )
            found.setdefault(number, []).append(told)
    return found


def killed(folder: Path, to: Path) -> Path:
    """What another process finds now."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def recovered(folder: Path, limits: JournalLimits = SMALL) -> int:
    journal = FileJournal(folder, limits, "never")
    aborted = journal.recover()
    journal.close_log()
    return aborted


async def test_a_row_says_all_that_was_counted(tmp_path: Path) -> None:
    """From admission to end, through the log."""
    journal = made(tmp_path)
    slot = begin(journal, 1)
    journal.deliver(slot, 4, 100)
    journal.end(slot, Ended(9, Outcome.OK, 1, 2, 3, 6, 120, True, 8), b"told")
    journal.flush()
    (rows,) = all_rows(tmp_path)
    (row,) = rows.rows
    assert bytes(row["request_id"]) == ident(1)
    assert rows.subjects[int(row["subject"])] == ALICE
    names = [
        name
        for name in row.dtype.names
        if name not in ("state", "request_id", "start_ns", "subject", "spare")
    ]
    assert {name: int(row[name]) for name in names} == {
        "part": 3,
        "attempt": 2,
        "input_tokens": 5,
        "rows": 7,
        "request_bytes": 11,
        "duration_ns": 9,
        "queue_ns": 1,
        "compute_ns": 2,
        "cached_tokens": 3,
        "output_tokens": 6,
        "response_bytes": 120,
        "outcome": 1,
        "from_cache": 1,
        "preemptions": 8,
    }
    assert rows.told == {0: b"told"}
    journal.close()


async def test_one_that_was_not_admitted_has_no_row(tmp_path: Path) -> None:
    """Cancelled at the door: neither now nor after a death."""
    journal = made(tmp_path / "a")
    journal.cancel(begin(journal, 1))
    assert recovered(killed(tmp_path / "a", tmp_path / "b")) == 0
    assert by_ident(tmp_path / "b") == {}
    assert journal.open_requests == 0
    journal.close()


async def test_what_was_open_is_aborted_with_what_had_been_delivered(tmp_path: Path) -> None:
    """The last delivery that was stored counts; recovering again changes nothing."""
    journal = made(tmp_path / "a")
    slot = begin(journal, 1)
    journal.deliver(slot, 2, 20)
    journal.deliver(slot, 3, 30)
    begin(journal, 2)
    found = killed(tmp_path / "a", tmp_path / "b")
    assert recovered(found) == 2
    assert recovered(found) == 0
    assert by_ident(found) == {1: [(5, 3, "alice")], 2: [(5, 0, "alice")]}
    journal.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 20)),  # a subject
        st.tuples(st.just("deliver"), st.integers(0, 5)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("flush"), st.just(0)),
    ),
    max_size=60,
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(STEPS, st.integers(0, 400), st.booleans())
def test_any_death_leaves_each_request_once(
    tmp_path: Path, steps: list[tuple[str, int]], cut: int, twice: bool
) -> None:
    """Whatever was done, and wherever the write to the log broke off that was under way."""
    asyncio.run(_any_death(tmp_path, steps, cut, twice))


async def _any_death(tmp_path: Path, steps: list[tuple[str, int]], cut: int, twice: bool) -> None:
    folder, copy = tmp_path / "a", tmp_path / "b"
    shutil.rmtree(folder, ignore_errors=True)
    journal = made(folder)
    opened: list[tuple[int, Slot]] = []
    expected: dict[int, tuple[int, int, str]] = {}
    count = 0
    for act, how in steps:
        if act == "open" and len(opened) < 8:  # as many subjects as there is room for
            count += 1
            subject = UsageSubject(f"p{how}", "", "", "", "")
            opened.append((count, begin(journal, count, subject)))
            expected[count] = (5, 0, f"p{how}")
        elif act == "flush":
            journal.flush()
        elif opened and act != "open":
            number, slot = opened[how % len(opened)]
            project = expected[number][2]
            if act == "deliver":
                tokens = expected[number][1] + 300
                journal.deliver(slot, tokens, tokens)
                expected[number] = (5, tokens, project)
            elif act == "cancel":
                journal.cancel(slot)
                del expected[number]
                opened.remove((number, slot))
            else:
                tokens = expected[number][1]
                journal.end(slot, Ended(1, Outcome.OK, output_tokens=tokens))
                expected[number] = (1, tokens, project)
                opened.remove((number, slot))
    killed(folder, copy)
    before = usage_log.segments(copy)[-1].stat().st_size
    journal.flush()
    # A write was under way: some of its bytes are there, and the table is as it was before.
    segment = usage_log.segments(folder)[-1]
    torn = segment.read_bytes()[before : before + cut] if segment.stat().st_size > before else b""
    same = usage_log.segments(copy)[-1]
    if same.name == segment.name:
        with same.open("ab") as file:
            file.write(torn)
    recovered(copy)
    if twice:
        recovered(copy)
    assert by_ident(copy) == {number: [row] for number, row in expected.items()}
    journal.close()


async def test_a_death_during_recovery_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are in the log and the table is not gone yet: they are not appended again."""
    journal = made(tmp_path / "a")
    slots = [begin(journal, number) for number in range(5)]
    journal.end(slots[2], Ended(1, Outcome.OK))
    found = killed(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(FileJournal, "_remove_table", lambda self: None)
    for _ in range(3):
        recovered(found)
    assert by_ident(found) == {n: [(1 if n == 2 else 5, 0, "alice")] for n in range(5)}
    journal.close()


async def test_many_subjects_keep_their_names(tmp_path: Path) -> None:
    """Numbers are given anew, and each row is read with the name that it had."""
    journal = made(tmp_path)
    for number in range(100):
        slot = begin(journal, number, UsageSubject(f"p{number}", "", "", "", ""))
        journal.end(slot, Ended(1, Outcome.OK))
    journal.flush()
    assert by_ident(tmp_path) == {n: [(1, 0, f"p{n}")] for n in range(100)}
    assert journal.epoch > 0
    journal.close()


async def test_too_many_at_once_are_refused(tmp_path: Path) -> None:
    """With a reason and a hint; a slot that is free again is used."""
    journal = made(tmp_path)
    slots = [begin(journal, number) for number in range(64)]
    with pytest.raises(UnavailableError) as caught:
        begin(journal, 64)
    assert (caught.value.reason, caught.value.retry_after) == ("USAGE_TABLE_FULL", 1.0)
    journal.end(slots[0], Ended(1, Outcome.OK))
    begin(journal, 65)
    journal.close()


async def test_a_full_outbox_refuses_until_metering_takes_rows(tmp_path: Path) -> None:
    """What is open ends and is counted; new requests are UNAVAILABLE."""
    journal = made(
        tmp_path, JournalLimits(slots=64, subjects=8, log_bytes=4096, segment_bytes=1024)
    )
    late = begin(journal, 1000)
    number = 0
    while not journal.is_refusing:
        journal.end(begin(journal, number), Ended(1, Outcome.OK))
        journal.flush()
        number += 1
    with pytest.raises(UnavailableError) as caught:
        begin(journal, number)
    assert caught.value.reason == "USAGE_OUTBOX_FULL"
    journal.end(late, Ended(1, Outcome.OK))
    journal.flush()
    assert len(by_ident(tmp_path)) == number + 1
    journal.taken(journal.next)
    begin(journal, 2000)
    journal.close()


@pytest.mark.skipif(os.getuid() != 0 and not Path("/dev/full").exists(), reason="no full disk")
async def test_a_full_disk_refuses_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that can't be appended stay in the table, and are appended once there is room."""
    journal = made(tmp_path / "a")
    slot = begin(journal, 1)
    write = os.write

    def no_room(file: int, data: bytes) -> int:
        write(file, data[:7])  # part of it is written
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", no_room)
    journal.end(slot, Ended(1, Outcome.OK))
    journal.flush()
    with pytest.raises(UnavailableError) as caught:
        begin(journal, 2)
    assert caught.value.reason == "USAGE_DISK_FULL"
    found = killed(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(os, "write", write)
    journal.see()
    begin(journal, 3)
    assert by_ident(tmp_path / "a") == {1: [(1, 0, "alice")]}
    recovered(found)
    assert by_ident(found) == {1: [(1, 0, "alice")]}
    journal.close()


async def test_a_broken_record_hides_what_follows_it_in_its_segment_only(tmp_path: Path) -> None:
    """The reader goes on with the next segment; the gap in the numbers shows what is lost."""
    journal = made(tmp_path)
    for number in range(60):
        journal.end(begin(journal, number), Ended(1, Outcome.OK))
        journal.flush()
    first, second, *_ = usage_log.segments(tmp_path)
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    numbers = [n for rows in all_rows(tmp_path) for n in range(rows.first, rows.next)]
    lost = set(range(60)) - set(numbers)
    assert lost
    assert lost == set(range(min(lost), usage_log.first_of(second)))
    journal.close()


async def test_always_is_on_the_disk_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each end is appended and synced at once."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal = made(tmp_path, sync="always")
    journal.end(begin(journal, 1), Ended(1, Outcome.OK))
    assert by_ident(tmp_path) == {1: [(1, 0, "alice")]}
    assert len(synced) == 1
    journal.close()


async def test_what_is_told_of_rows_waits_for_them(tmp_path: Path) -> None:
    """A reader that comes while they are written takes both, and nothing that is of other rows."""
    journal, reader = made(tmp_path), UsageReader(tmp_path)
    journal.end(begin(journal, 1), Ended(1, Outcome.OK), b"one")
    journal.flush()
    (segment,) = usage_log.segments(tmp_path)
    before = segment.stat().st_size
    journal.end(begin(journal, 2), Ended(1, Outcome.OK), b"two")
    journal.flush()
    whole = segment.read_bytes()
    (told_end, _) = (record.end for record in usage_log.records(segment, before))
    found = []
    for content in (whole[:told_end], whole):
        segment.write_bytes(content)
        rows = reader.read(10)
        assert rows is not None
        reader.passed()
        found.append((rows.first, len(rows.rows), dict(rows.told)))
    assert found == [(0, 1, {0: b"one"}), (1, 1, {1: b"two"})]
    journal.close()


async def test_the_reader_goes_on_after_a_segment_that_was_taken(tmp_path: Path) -> None:
    """All of it was stored, so it is gone before the reader has looked for the next one."""
    journal, reader = made(tmp_path), UsageReader(tmp_path)
    seen: list[int] = []
    for number in range(60):
        journal.end(begin(journal, number), Ended(1, Outcome.OK))
        journal.flush()
        while (rows := reader.read(10)) is not None:
            seen += range(rows.first, rows.next)
            reader.passed()
            journal.taken(rows.next)
    assert seen == list(range(60))
    journal.close()
