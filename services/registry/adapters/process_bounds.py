"""Bounds of a probe process: what it reads may not take the machine with it."""

import resource
from pathlib import Path

_MAPPED = Path("/proc/self/statm")  # Linux only; elsewhere memory stays unbounded


def bound(cpu_seconds: int, memory_bytes: int) -> None:
    """Bound the rest of this process: CPU time, and memory on top of what is mapped already."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _MAPPED.exists():
        most = int(_MAPPED.read_text().split()[0]) * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
