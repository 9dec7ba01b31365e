"""A check that is interrupted cleans up: signals meant for the runner reach what it runs."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = """
import sys
from pathlib import Path
from tools.checks import run_interruptibly
sys.exit(run_interruptibly([sys.executable, "-c", sys.argv[1]], Path(".")))
"""
CHECK = """
import sys, time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("cleaned up", flush=True)
    sys.exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_check(number: signal.Signals) -> None:
    """SIGTERM and SIGINT arrive as an interrupt; the check finishes, and its exit code is ours."""
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, CHECK], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "cleaned up\n"
        assert process.wait(30) == 7
