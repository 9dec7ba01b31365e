"""The lock files: that they are those of pyproject.toml and stand alone."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = [Requirement(line) for line in PROJECT["dependencies"]]
DEVELOPMENT = [Requirement(line) for line in PROJECT["optional-dependencies"]["dev"]]


def locked(kind: str) -> dict[str, set[str]]:
    """Locked versions by name: one each, or one for each range of Pythons."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / "lock" / f"{kind}.txt").read_text(), re.MULTILINE
    ):
        versions.setdefault(canonicalize_name(name), set()).add(version)
    return versions


@pytest.mark.parametrize(
    ("kind", "wanted"), [("runtime", RUNTIME), ("dev", [*RUNTIME, *DEVELOPMENT])]
)
def test_locks_have_what_the_project_names(kind: str, wanted: list[Requirement]) -> None:
    """Who changes pyproject.toml runs `./inferplane lock`."""
    versions = locked(kind)
    for requirement in wanted:
        found = versions.get(canonicalize_name(requirement.name), set())
        assert found, requirement.name
        assert all(requirement.specifier.contains(version) for version in found), requirement


def test_the_development_lock_includes_the_runtimes() -> None:
    """What is tested is what runs: same packages, same versions."""
    development = locked("dev")
    assert {name: development.get(name) for name in locked("runtime")} == locked("runtime")


@pytest.mark.parametrize("kind", ["runtime", "dev"])
def test_locks_name_no_server(kind: str) -> None:
    """Where packages come from is the user's configuration."""
    text = (ROOT / "lock" / f"{kind}.txt").read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
