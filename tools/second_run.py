"""Tests that failed while others ran beside them, run once more on their own.

A machine that stops for seconds fails tests of real processes now and then, each time another one. Such a test passes
when it is run again alone; a defect that can be repeated does not. Names of tests that needed it are always printed:
one that comes up more than once has a defect, its own or ours.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_MOST = 3  # more failures are no accident
FAILED = 1  # pytest's exit code for tests that ran and failed


class FirstRun:
    """What one pytest process remembers of its failures."""

    def __init__(self, root: Path, name: str) -> None:
        """A folder of its own, empty."""
        self._folder = root / "build" / "pytest" / name
        shutil.rmtree(self._folder, ignore_errors=True)

    def arguments(self) -> list[str]:
        """For pytest."""
        return ["-o", f"cache_dir={self._folder}"]

    def failed(self) -> list[str]:
        """Ids of the tests that failed."""
        try:
            return list(json.loads((self._folder / "v/cache/lastfailed").read_bytes()))
        except FileNotFoundError:
            return []


def deserves_another(failed: Sequence[str], computing: Sequence[str]) -> bool:
    """Whether these may have failed by accident: few, and none of `computing` paths, which wait for nobody.

    A failure may show in other tests, too: what an ended test left behind is collected, and warns, in another.
    """
    never = tuple(f"{path}/" for path in computing)
    return 0 < len(failed) <= _MOST and not any(test.startswith(never) for test in failed)


def passes(root: Path, failed: Sequence[str]) -> bool:
    """Run them again, one after the other, with nothing beside them."""
    print(f"-- again, alone: {' '.join(failed)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed]
    if subprocess.run(command, cwd=root, check=False).returncode:
        return False
    print(f"-- UNSTEADY, passed only when run again: {' '.join(failed)}", flush=True)
    return True
