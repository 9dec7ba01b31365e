"""A process of its own that reads one model's signature, so that no bytes can harm or stall the registry.

Reads `{"model", "location", "sizes", "cpu_seconds", "memory_bytes"}` as JSON from stdin, writes
`{"inputs", "outputs"}` or `{"error"}` to stdout. Run as `python -m services.registry.adapters.onnx_probe`.
"""

import dataclasses
import json
import resource
import sys
from pathlib import Path

from services.registry.adapters.onnx_signature import ModelError, read_signature

_MAPPED = Path("/proc/self/statm")  # Linux only; elsewhere memory stays unbounded


def _bound(cpu_seconds: int, memory_bytes: int) -> None:
    """Bound the rest of this process: CPU time, and memory on top of what is mapped already."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _MAPPED.exists():
        most = int(_MAPPED.read_text().split()[0]) * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Read one question from stdin and answer it on stdout."""
    question = json.load(sys.stdin)
    _bound(question["cpu_seconds"], question["memory_bytes"])
    try:
        signature = read_signature(question["model"], Path(question["location"]), question["sizes"])
        answer: dict[str, object] = dataclasses.asdict(signature)
    except ModelError as error:
        answer = {"error": str(error)}
    except (MemoryError, RecursionError) as error:
        answer = {"error": f"reading it takes too much memory ({type(error).__name__})"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
