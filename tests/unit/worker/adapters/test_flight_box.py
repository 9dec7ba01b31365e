"""What a worker computed when it died is known to those that live."""

import errno
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.worker.adapters import flight_box, lock_holder
from services.worker.adapters.flight_box import FlightBoxes
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BF16

A, B = {"x": np.arange(6.0).reshape(2, 3)}, {"x": np.full((1, 3), 7.5)}


def opened(folder: Path, owner: str) -> FlightBoxes:
    boxes = FlightBoxes(folder / "flights", owner)
    boxes.open()
    return boxes


def die(boxes: FlightBoxes) -> None:
    """As the kernel leaves it."""
    boxes._lock.release()


def test_what_was_in_flight_is_known(tmp_path: Path) -> None:
    """Each row of a batch, alone or with others; not what had ended, nor what others computed."""
    first, second = opened(tmp_path, "w1"), opened(tmp_path, "w2")
    first.end(first.begin(B))
    first.begin(A)
    second.begin({"x": np.full((1, 3), 3.25)})
    assert not second.look()
    assert not second.was_lost(A)
    die(first)
    assert second.look()
    assert not second.look()
    assert second.is_alert
    assert second.was_lost(A)
    assert second.was_lost({"x": A["x"][1:]})
    assert not second.was_lost(B)
    assert not second.was_lost({"x": np.full((1, 3), 3.25)})
    third = opened(tmp_path, "w3")
    assert third.was_lost(A)


def test_a_dying_worker_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its callers may notice before its lock is free; one of whom nothing can be seen costs this wait once."""
    monkeypatch.setattr(lock_holder, "is_ending", lambda _path: None)
    first, second = opened(tmp_path, "w1"), opened(tmp_path, "w2")
    first.begin(A)
    monkeypatch.setattr(flight_box, "_DYING_SECONDS", 60.0)
    threading.Timer(0.005, die, [first]).start()
    assert second.was_lost(A)
    monkeypatch.setattr(flight_box, "_DYING_SECONDS", 0.0)
    third = opened(tmp_path, "w3")
    third.begin(B)
    assert not second.was_lost(B)
    assert second._waited_for == {"w3.box"}


# The kernel ends threads one by one: here the first ends, and the files stay open for as long as another one lives.
_ENDS_SLOWLY = """
import ctypes, os, sys, threading
from pathlib import Path
import numpy as np
from services.worker.adapters.flight_box import FlightBoxes

folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def live_on():
    os.read(last, 1)
    os._exit(0)

boxes = FlightBoxes(folder, "w1")
boxes.open()
boxes.begin({"x": np.arange(6.0).reshape(2, 3)})
threading.Thread(target=live_on).start()
print("begun", flush=True)
os.read(first, 1)
ctypes.CDLL(None).syscall(60, 0)
"""


@contextmanager
def _killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the number of a system call"
)
def test_one_that_is_seen_to_end_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes on a busy machine; one that is seen to live is not waited for at all."""
    monkeypatch.setattr(flight_box, "_DYING_SECONDS", 0.0)
    monkeypatch.setattr(flight_box, "_ENDING_SECONDS", 120.0)
    folder, looks = tmp_path / "flights", 0
    (first, end_first), (last, end_last) = os.pipe(), os.pipe()
    words = [sys.executable, "-c", _ENDS_SLOWLY, str(folder), str(first), str(last)]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, pass_fds=[first, last]) as dying,
        _killed(dying),
    ):
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"begun\n"
        boxes = opened(tmp_path, "w2")

        def look(_seconds: float) -> None:
            nonlocal looks
            looks += 1
            if looks == 100:
                os.write(end_last, b"x")

        monkeypatch.setattr(time, "sleep", look)
        assert not boxes.was_lost(A)
        assert (looks, boxes._waited_for) == (0, set())
        os.write(end_first, b"x")
        while not lock_holder.is_ending(folder / "w1.box"):
            os.sched_yield()
        assert boxes.was_lost(A)
        assert looks >= 100
    for end in (first, end_first, last, end_last):
        os.close(end)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.array(["a", "bb"], dtype=object), id="strings"),
        pytest.param(np.array([1.5, 2.5], BF16.dtype), id="bfloat"),
        pytest.param(np.array(5, np.int64), id="scalar"),
        pytest.param(np.arange(12).reshape(3, 4).T, id="not contiguous"),
        pytest.param(np.arange(1 << 18), id="larger than a slot"),
    ],
)
def test_any_array_is_found_again(tmp_path: Path, array: Any) -> None:
    """By its first row."""
    first = opened(tmp_path, "w1")
    first.begin({"x": array, "y": np.full((1, 16), 77, np.int8)})
    die(first)
    assert opened(tmp_path, "w2").was_lost({"x": array, "y": np.full((1, 16), 77, np.int8)})
    assert not opened(tmp_path, "w3").was_lost({"x": array, "y": np.full((1, 16), 78, np.int8)})


def test_a_run_that_ended_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    """Nor is a text in it while it is computed."""
    boxes, text = opened(tmp_path, "w1"), "a text that nobody else has"
    box = tmp_path / "flights" / "w1.box"
    slot = boxes.begin({"x": np.array([text, "another"], dtype=object), "y": A["x"]})
    noted = box.read_bytes()
    assert A["x"].tobytes() in noted
    assert text.encode() not in noted
    boxes.end(slot)
    assert not any(box.read_bytes())


def test_who_computed_nothing_leaves_no_suspicion(tmp_path: Path) -> None:
    """Killed while idle, or ended in order with a run that never did."""
    idle, orderly = opened(tmp_path, "w1"), opened(tmp_path, "w2")
    orderly.begin(A)
    orderly.close()
    die(idle)
    living = opened(tmp_path, "w3")
    assert not living.is_alert
    assert not living.look()


def test_suspicion_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened long ago is forgotten, and its file removed."""
    monkeypatch.setattr(flight_box, "_FRESH_SECONDS", -1.0)
    first = opened(tmp_path, "w1")
    first.begin(A)
    die(first)
    later = opened(tmp_path, "w2")
    assert not later.is_alert
    assert not later.was_lost(A)
    assert not list(tmp_path.rglob("*.wreck"))


def test_what_is_known_is_forgotten_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and memory of a worker that died go, also from those who lived with it; so does who was guilty."""
    first, second = opened(tmp_path, "w1"), opened(tmp_path, "w2")
    first.begin(A)
    die(first)
    assert second.look()
    second.blame("ab")
    assert second.knows_guilty
    monkeypatch.setattr(flight_box, "_FRESH_SECONDS", -1.0)
    assert not second.look()
    assert not second.is_alert
    assert not second.was_lost(A)
    assert not second.knows_guilty
    assert [path.name for path in (tmp_path / "flights").iterdir()] == ["w2.box"]


def test_who_looks_late_hides_no_wreck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that saw the same box before one of them declared it: what was in it stays."""
    first, second, third = (opened(tmp_path, owner) for owner in ("w1", "w2", "w3"))
    first.begin(A)
    die(first)
    box = tmp_path / "flights" / "w1.box"
    late, declare = box.open("r+b"), flight_box._declare_if_dead
    assert second.look()
    declare(box)  # it is not there any more
    with late, monkeypatch.context() as patch:  # or it was opened before, and moved then
        patch.setattr(Path, "open", lambda *_: late)
        declare(box)
    assert not box.exists()
    assert third.look()
    assert third.was_lost(A)


def test_what_is_guilty_is_known_to_all(tmp_path: Path) -> None:
    """To the one that found it at once, to others when they look."""
    first, second = opened(tmp_path, "w1"), opened(tmp_path, "w2")
    first.blame("ab")
    assert first.is_guilty("ab")
    assert not second.is_guilty("ab")
    second.look()
    assert second.is_guilty("ab")
    assert not second.is_guilty("cd")


def test_a_folder_that_cannot_be_read_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is found there as long as files can't be opened."""
    boxes = opened(tmp_path, "w1")

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(Path, "glob", none_left)
    assert not boxes.look()


def test_a_full_disk_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that the disk has no room for would end the process; such a run is not noted, later ones are."""
    boxes = opened(tmp_path, "w1")

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        assert boxes.begin(A) is None
    assert boxes.begin(A) is not None
    assert (tmp_path / "flights" / "w1.box").stat().st_blocks * 512 >= 1 << 20


class Doubling:
    """A session that tells what is noted meanwhile."""

    def __init__(self, boxes: FlightBoxes) -> None:
        self.boxes = boxes
        self.free: list[int] = []

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        self.free.append(len(self.boxes._free))
        if feeds["x"].size > 3:
            raise ValueError("too many")
        return {"y": 2 * feeds["x"]}


def test_runs_are_noted_however_they_end(tmp_path: Path) -> None:
    """One slot while it runs; with more runs than slots the rest is not noted."""
    boxes = opened(tmp_path, "w1")
    inner = Doubling(boxes)
    session = boxes.recorded(inner)
    assert (session.run(B, ["y"])["y"] == 15).all()
    with pytest.raises(ValueError, match="too many"):
        session.run(A, ["y"])
    assert inner.free == [15, 15]
    held = [boxes.begin(A) for _ in range(20)]
    assert held.count(None) == 4
    session.run(B, ["y"])
    for slot in held:
        boxes.end(slot)
    assert len(boxes._free) == 16


def test_a_folder_that_cannot_be_written_notes_nothing(tmp_path: Path) -> None:
    """It stops nobody."""
    (tmp_path / "flights").write_bytes(b"")
    boxes = opened(tmp_path, "w1")
    assert boxes.begin(A) is None
    boxes.end(None)
    assert not boxes.look()
    boxes.close()
