"""The order of checks: all run, one failure fails all."""

import sys
from pathlib import Path

import pytest

from tools.checks import Check, run_checks

PASSING = Check(name="fine", command=[sys.executable, "-c", "print('quiet')"])
FAILING = Check(
    name="bad", command=[sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]
)
WAITING = Check(name="later", command=["/nowhere"], skip_reason="no baseline yet")


def test_every_check_runs_after_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure shows its output, the rest still runs, and the whole fails."""
    assert run_checks(tmp_path, [FAILING, PASSING]) == 1
    told = capsys.readouterr().out
    assert "bad: FAILED" in told
    assert "the reason" in told
    assert "fine: ok" in told
    assert "quiet" not in told
    assert told.endswith("-- failed: bad\n")


def test_a_check_that_cannot_run_yet_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It neither runs nor fails."""
    assert run_checks(tmp_path, [WAITING, PASSING]) == 0
    assert "later: no baseline yet" in capsys.readouterr().out
