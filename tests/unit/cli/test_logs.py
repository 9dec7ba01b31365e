"""Logs: written, moved aside when large, read from the end, followed."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli.adapters import log_reader
from services.cli.adapters.log_reader import LogReader
from services.cli.adapters.state_directory import StateDirectory
from services.cli.drivers.log_file import LogFile
from services.rpc.errors import NotFoundError


def test_large_log_is_moved_aside(tmp_path: Path) -> None:
    """One old file is kept; no line is lost or cut at the change."""
    log = LogFile(tmp_path / "a.log", largest=30)
    log.open()
    for number in range(7):
        log.write(b"line %d....\n" % number)
    log.close()
    assert (tmp_path / "a.log.1").read_bytes() == b"line 3....\nline 4....\nline 5....\n"
    assert (tmp_path / "a.log").read_bytes() == b"line 6....\n"
    assert list(log.last_lines)[-1] == "line 6...."


def test_log_goes_on_at_the_next_start(tmp_path: Path) -> None:
    """A small file is appended to, a large one moved aside first."""
    path = tmp_path / "a.log"
    for _ in range(2):
        log = LogFile(path, largest=10)
        log.open()
        log.write(b"12345\n")
        log.close()
    assert path.read_bytes() == b""
    assert path.with_name("a.log.1").read_bytes() == b"12345\n12345\n"


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """A state directory with the logs of two services."""
    state = StateDirectory(tmp_path)
    state.prepare()
    for service, seconds in (("router", (1, 3)), ("worker-1", (2, 4))):
        lines = [
            json.dumps(
                {"event": f"e{s}", "level": "info", "timestamp": f"2026-01-01T00:00:0{s}.5Z"}
            )
            for s in seconds
        ]
        (state.logs / f"{service}.log").write_text("\n".join([*lines, "plain", ""]))
    return state


def _shown(
    state: StateDirectory, *services: str, count: int, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    LogReader(state, list(services), raw=False).show(count)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_lines_of_all_services_by_time(
    state: StateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines are merged by time; one without a time stays behind the one before it."""
    assert _shown(state, count=50, capsys=capsys) == [
        "router 00:00:01.5 info e1",
        "worker-1 00:00:02.5 info e2",
        "router 00:00:03.5 info e3",
        "router plain",
        "worker-1 00:00:04.5 info e4",
        "worker-1 plain",
    ]


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, []), (1, ["worker-1 plain"]), (2, ["worker-1 00:00:04.5 info e4", "worker-1 plain"])],
)
def test_last_lines(
    state: StateDirectory, capsys: pytest.CaptureFixture[str], count: int, shown: list[str]
) -> None:
    """Only so many of the last lines."""
    assert _shown(state, "worker", count=count, capsys=capsys) == shown


def test_end_of_a_large_log_is_read_from_the_end(
    state: StateDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that lie across blocks come out whole."""
    monkeypatch.setattr(log_reader, "_CHUNK", 7)
    text = "".join(f"{number:020}\n" for number in range(100))
    (state.logs / "router.log").write_text(text)
    assert _shown(state, "router", count=3, capsys=capsys) == [
        f"router {number:020}" for number in (97, 98, 99)
    ]


def test_unknown_service(state: StateDirectory, tmp_path: Path) -> None:
    """The message lists what there is."""
    with pytest.raises(NotFoundError, match="there are: router, worker-1"):
        LogReader(state, ["nobody"], raw=False)
    with pytest.raises(NotFoundError, match="no logs: no mesh runs on"):
        LogReader(StateDirectory(tmp_path / "none"), [], raw=False)


def test_follow(
    state: StateDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New lines, halves of lines, files moved aside and services that start later are all followed."""
    path = state.logs / "router.log"

    def append(text: str) -> None:
        with path.open("a") as stream:
            stream.write(text)

    def move_aside() -> None:
        path.rename(path.with_name("router.log.1"))
        path.write_text("after\n")

    steps: list[Callable[[], object]] = [
        lambda: append("half"),
        lambda: append(" whole\n"),
        move_aside,
        lambda: (state.logs / "envoy.log").write_text("new\n"),
        lambda: None,
    ]
    ended = threading.Event()

    def look(_seconds: float) -> None:
        if not steps:
            ended.set()
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr("services.cli.adapters.log_reader.time.sleep", look)
    reader = LogReader(state, [], raw=True)
    reader.show(0)
    with pytest.raises(KeyboardInterrupt):
        reader.follow()
    assert ended.is_set()
    assert capsys.readouterr().out.splitlines() == ["half whole", "after", "new"]
