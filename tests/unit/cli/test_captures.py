"""Captured texts on this machine can be read and removed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.adapters import captures
from services.cli.adapters.captures import Wanted
from services.cli.commands.app import app
from services.worker.adapters.capture_files import CaptureFiles
from services.worker.domain.capture import Capture, capture_line
from services.worker.ports.capture_store import CapturedLine

DAY = datetime(2026, 11, 30, 12, tzinfo=UTC)


def line(number: int, project: str = "lab") -> CapturedLine:
    capture = Capture(
        time=DAY + timedelta(hours=number),
        request_id=number.to_bytes(16, "big"),
        project=project,
        endpoint="chat",
        version="models/m/versions/1",
        prompts=[f"prompt {number}\nof two lines"],
        answers=["answer " * 40],
        scores={"input_offensive": 0.25},
        max_bytes=1000,
    )
    return CapturedLine(capture_line(capture, ()), 7)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """As a worker leaves it."""
    files = CaptureFiles(tmp_path / "capture", 1 << 20, lambda: DAY)
    files.keep([line(1), line(2, "shop"), line(3)])
    files.close()
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        pytest.param(Wanted(), [1, 2, 3], id="all"),
        pytest.param(Wanted(project="lab"), [1, 3], id="of a project"),
        pytest.param(Wanted(endpoint="other"), [], id="of another endpoint"),
        pytest.param(Wanted(since=DAY + timedelta(hours=2)), [2, 3], id="since then"),
    ],
)
def test_calls_are_found(state: Path, wanted: Wanted, numbers: list[int]) -> None:
    """By project, endpoint and time."""
    found = [int(of["request_id"], 16) for of in captures.read(state / "capture", wanted)]
    assert found == numbers


def test_a_file_that_ends_within_a_line_is_read_up_to_it(state: Path) -> None:
    """As a worker that died left it."""
    (path,) = (state / "capture").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert len(list(captures.read(state / "capture", Wanted()))) == 2


def test_list_shows_a_line_for_each(state: Path) -> None:
    """Whole texts come as JSON."""
    runner = CliRunner()
    shown = runner.invoke(app, ["captures", "list", "--state-dir", str(state)])
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == 4
    assert "prompt 1 of two lines" in shown.stdout
    assert "input_offensive=0.25" in shown.stdout
    whole = runner.invoke(app, ["captures", "list", "--state-dir", str(state), "-o", "json"])
    assert json.loads(whole.stdout)[0]["answers"] == ["answer " * 40]


def test_purge_removes_them(state: Path) -> None:
    """Those that ended before a moment, or all; other files stay."""
    (state / "capture" / "mine.txt").write_text("")
    runner = CliRunner()
    order = ["captures", "purge", "--state-dir", str(state)]
    none = runner.invoke(app, [*order, "--before", "2020-01-01", "-o", "json"])
    assert json.loads(none.stdout) == {"removed_files": 0}
    assert runner.invoke(app, order).stdout == "1 files removed\n"
    assert [path.name for path in (state / "capture").iterdir()] == ["mine.txt"]
    empty = runner.invoke(app, ["captures", "list", "--state-dir", str(state)])
    assert empty.exit_code == 0
    assert "no captured calls" in empty.stderr
