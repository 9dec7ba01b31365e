"""Log lines: JSON of the services, and anything else."""

import pytest

from services.cli.domain import log_line


def test_json_line() -> None:
    """Level, time of day, event and fields are found; the service's own fields are not repeated."""
    raw = (
        '{"event": "call failed", "level": "error", "timestamp": "2026-11-30T07:12:13.456789Z",'
        ' "service": "worker", "method": "/a/B", "note": "two words", "count": 3}\n'
    )
    line = log_line.parse("worker-1", raw)
    assert line.clock == "07:12:13.456"
    assert (line.service, line.level_name) == ("worker-1", "error")
    assert line.text == 'call failed method=/a/B note="two words" count=3'
    assert line.level > log_line.WARNING


@pytest.mark.parametrize(
    ("level", "is_warning"),
    [("debug", False), ("info", False), ("warning", True), ("critical", True), ("odd", True)],
)
def test_levels(level: str, is_warning: bool) -> None:
    """An unknown level is shown rather than hidden."""
    line = log_line.parse("router", f'{{"event": "x", "level": "{level}"}}')
    assert (line.level >= log_line.WARNING) is is_warning


@pytest.mark.parametrize("raw", ["Traceback (most recent call last):", "[1]", "{broken", "7", ""])
def test_other_lines_are_warnings_as_they_are(raw: str) -> None:
    """A traceback or a crash message is shown as it was written."""
    line = log_line.parse("worker-1", raw + "\n")
    assert (line.text, line.level, line.clock) == (raw, log_line.WARNING, "")


def test_exception_follows_the_event() -> None:
    """A logged traceback is kept with its lines."""
    line = log_line.parse("r", '{"event": "x", "level": "error", "exception": "A\\nB"}')
    assert line.text == "x\nA\nB"
