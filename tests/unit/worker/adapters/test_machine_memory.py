"""How much memory a process may have."""

from pathlib import Path

import pytest

from services.worker.adapters.machine_memory import bytes_allowed

GIB = 1024**3


@pytest.mark.parametrize(
    ("own", "limits", "allowed"),
    [
        pytest.param("0::/a/b\n", {"a/b/memory.max": "1073741824\n"}, GIB, id="own group"),
        pytest.param(
            "0::/a/b\n",
            {"a/b/memory.max": "max\n", "a/memory.max": "1073741824\n"},
            GIB,
            id="group above it",
        ),
        pytest.param("0::/../other\n", {"memory.max": "1073741824\n"}, GIB, id="in a container"),
        pytest.param(
            "4:cpu:/x\n3:memory,hugetlb:/x\n",
            {
                "memory/x/memory.limit_in_bytes": "1073741824\n",
                "cpu/x/memory.limit_in_bytes": "5\n",
            },
            GIB,
            id="version 1",
        ),
    ],
)
def test_the_least_limit_counts(
    tmp_path: Path, own: str, limits: dict[str, str], allowed: int
) -> None:
    """Of the groups that this process is in."""
    root, groups = tmp_path / "cgroup", tmp_path / "own"
    groups.write_text(own)
    for name, text in limits.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert bytes_allowed(root, groups) == allowed


def test_without_limits_it_is_the_machines(tmp_path: Path) -> None:
    """Also where no groups are to be read."""
    machine = bytes_allowed(tmp_path / "none", tmp_path / "none")
    (tmp_path / "memory.max").write_text("max\n")
    assert bytes_allowed(tmp_path, tmp_path / "none") == machine > 0
