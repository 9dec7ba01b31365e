"""The benchmark of roll-outs, short: it runs as it stands, and loses no call."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

_ROOT = Path(__file__).parents[3]


def test_it_tells_what_each_step_took_and_no_call_fails() -> None:
    """Pushed, deployed, moved, grown, drained and killed under load: twelve lines, and all calls are well."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rollout", "--calls", "4000", "--rate", "100"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, summary = done.stdout.splitlines()
    assert len(steps) == 12
    assert summary.startswith("4000 calls: OK 4000;")
