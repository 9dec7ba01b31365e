"""The README's first command, as typed.

INFERPLANE_TEST_DEMO_VENV names an environment for it, made if there is none: it has only what users get, so that a
package that just the tests bring is missed.
"""

import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.e2e.mesh import ROOT

pytestmark = pytest.mark.extended


@pytest.mark.timeout(900)
def test_demo_ends_with_0_from_another_folder(tmp_path: Path) -> None:
    """`inferplane demo --exit` serves, chats, moves traffic and judges every answer; nothing stays behind."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("INFERPLANE_")}
    if venv := os.environ.get("INFERPLANE_TEST_DEMO_VENV"):
        clean["INFERPLANE_VENV"] = venv
    done = subprocess.run(
        [ROOT / "inferplane", "demo", "--exit"],
        cwd=tmp_path,
        env={**clean, "TMPDIR": str(tmp_path), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "true label" in done.stdout
    assert re.search(r"the same text, and [1-9]\d* of the prompt's \d+ tokens", done.stdout), (
        done.stdout
    )
    assert "0 calls failed" in done.stdout
    assert re.search(r"^smollm2 +\d", done.stdout, re.MULTILINE), done.stdout
    assert "everything adds up" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert [p for p in psutil.process_iter(["cmdline"]) if _from(tmp_path, p)] == []


def _from(folder: Path, process: psutil.Process) -> bool:
    return any(str(folder) in part for part in process.info["cmdline"] or ())
