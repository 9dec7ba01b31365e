"""The checks of protos/: that they hold today, and that a breaking change is really caught."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import protos

ROOT = Path(__file__).resolve().parents[2]
PROTO = "protos/inferplane/shop/v1/order.proto"
RELEASED = """
syntax = "proto3";
package inferplane.shop.v1;

import "google/api/annotations.proto";

// What was ordered.
message Order {
  // Its name.
  string name = 1;
  // How many.
  int32 count = 2;
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one released proto under our buf.yaml."""
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    (tmp_path / PROTO).parent.mkdir(parents=True)
    (tmp_path / PROTO).write_text(RELEASED)
    protos.release(tmp_path)
    return tmp_path


def run(tree: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def test_nothing_changed_breaks_nothing(tree: Path) -> None:
    """The released protos are compatible with themselves."""
    assert run(tree, protos.breaking_command()).returncode == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("  int32 count = 2;\n", "", id="field removed"),
        pytest.param("int32 count = 2", "int64 count = 2", id="type changed"),
        pytest.param("int32 count = 2", "int32 count = 3", id="number changed"),
        pytest.param("message Order", "message Purchase", id="message renamed"),
    ],
)
def test_a_breaking_change_is_caught(tree: Path, before: str, after: str) -> None:
    """What clients of the release would stumble over fails the check, which names the file."""
    (tree / PROTO).write_text(RELEASED.replace(before, after))
    done = run(tree, protos.breaking_command())
    assert done.returncode != 0
    assert PROTO in done.stdout


def test_an_added_field_breaks_nothing(tree: Path) -> None:
    """Growing is allowed."""
    (tree / PROTO).write_text(
        RELEASED.replace("int32 count = 2;", "int32 count = 2;\n  // When.\n  int64 time = 3;")
    )
    assert run(tree, protos.breaking_command()).returncode == 0


def test_a_bad_name_is_caught(tree: Path) -> None:
    """Buf's rules apply to our packages."""
    (tree / PROTO).write_text(RELEASED.replace("string name", "string Name"))
    done = run(tree, protos.lint_command())
    assert done.returncode != 0
    assert "lower_snake_case" in done.stdout


def test_stale_dependencies_are_replaced(tree: Path) -> None:
    """The copied google protos are those of the installed package, whatever lay there."""
    copied = tree / "build" / "googleapis" / "google" / "api" / "http.proto"
    original = copied.read_text()
    copied.write_text("stale")
    protos.lay_out_dependencies(tree)
    assert copied.read_text() == original
