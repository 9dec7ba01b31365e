"""Tests of tools/second_run.py: with pytest itself, on a small tree."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import second_run
from tools.second_run import FirstRun

_COMPUTING = ("tests/unit", "tests/contract")
_UNSTEADY = """
from pathlib import Path
def test_it():
    mark = Path(__file__).with_suffix(".mark")
    seen = mark.exists()
    mark.touch()
    assert seen
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one test that passes the second time, and one that never does."""
    folder = tmp_path / "tests/integration"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_unsteady.py").write_text(_UNSTEADY)
    (folder / "test_broken.py").write_text("def test_it():\n    assert False\n")
    return tmp_path


def _failed(root: Path, path: str) -> list[str]:
    first = FirstRun(root, "lane")
    command = [sys.executable, "-m", "pytest", "-q", *first.arguments(), path]
    done = subprocess.run(command, cwd=root, check=False, capture_output=True)
    assert done.returncode == second_run.FAILED
    return first.failed()


def test_an_accident_passes_and_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What fails once and then no more counts as passed, and its name is printed."""
    failed = _failed(root, "tests/integration/test_unsteady.py")
    assert failed == ["tests/integration/test_unsteady.py::test_it"]
    assert second_run.deserves_another(failed, _COMPUTING)
    assert second_run.passes(root, failed)
    assert f"UNSTEADY, passed only when run again: {failed[0]}" in capsys.readouterr().out


def test_a_defect_fails_again(root: Path) -> None:
    """What fails every time has failed."""
    failed = _failed(root, "tests/integration/test_broken.py")
    assert second_run.deserves_another(failed, _COMPUTING)
    assert not second_run.passes(root, failed)


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param([], id="nothing failed"),
        pytest.param(["tests/unit/test_x.py::test_a"], id="a test that depends on nothing else"),
        pytest.param([f"tests/e2e/test_x.py::test_{n}" for n in range(4)], id="too many"),
        pytest.param(
            ["tests/e2e/test_x.py::test_a", "tests/contract/test_y.py::test_b"], id="one of each"
        ),
    ],
)
def test_no_second_run(failed: list[str]) -> None:
    """Many failures, or one of a test that only computes, are no accident."""
    assert not second_run.deserves_another(failed, _COMPUTING)


def test_failures_of_another_run_are_forgotten(root: Path) -> None:
    """Each first run begins with nothing remembered."""
    assert _failed(root, "tests/integration/test_broken.py")
    assert FirstRun(root, "lane").failed() == []
