"""How much memory this process may have: the machine's, or its control groups'."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def bytes_allowed(root: Path = _GROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """The least of the machine's memory and the limits of the groups this process is in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min((machine, *_limits(root, own)))


def _limits(root: Path, own: Path) -> Iterator[int]:
    for file in _files(root, own):
        with contextlib.suppress(OSError, ValueError):  # "max", or no such file
            yield int(file.read_text())


def _files(root: Path, own: Path) -> Iterator[Path]:
    """Where limits may stand: version 2 (each group and those above it), then version 1."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = own.read_text().splitlines()
    for line in (
        "0::/",
        "1:memory:/",
        *lines,
    ):  # in a container the own group is mounted as the root
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = (root / "memory" if controllers else root) / path.lstrip("/")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        yield from (folder / name for folder in (group, *group.parents) if folder != root.parent)
