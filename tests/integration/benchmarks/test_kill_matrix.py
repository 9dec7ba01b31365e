"""The kills at chosen moments, few of them: what each caller got is what is counted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

_ROOT = Path(__file__).parents[3]


def test_each_accepted_request_has_one_row_whoever_is_killed_when() -> None:
    """Client, worker, Envoy and metering, in a stream and in unary calls: one row each, tokens fit, nothing is held."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kill_matrix", "--directed", "few"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *told, summary = done.stdout.splitlines()
    kills = json.loads(summary)["kills"]
    assert set(kills) == {"client", "worker", "envoy", "metering"}
    assert sum(kills.values()) == 8
    assert any(line.startswith("stream client | 5: 5/") for line in told), done.stdout
    assert "sse worker | 16: 16/16/16 ok" in told
