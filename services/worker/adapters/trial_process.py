"""A process of its own in which something may crash, never end or take all memory: what both of its sides need.

On its stdin comes an order; each line on its stdout is a JSON object: `{"stage": …}` for what begins, then a result or
`{"error": …}`.
"""

import math
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import BinaryIO

import orjson

_NICENESS = 5  # the worker's calls come first


class Lines:
    """The child's pipe to the worker."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    @classmethod
    def on_stdout(cls) -> "Lines":
        """Only lines go to stdout: whatever a library prints goes to stderr from now on."""
        lines = cls(os.fdopen(os.dup(1), "wb"))
        os.dup2(2, 1)
        return lines

    def write(self, line: Mapping[str, object]) -> None:
        """One line, at once."""
        self._out.write(orjson.dumps(line) + b"\n")
        self._out.flush()


def bound(seconds: float, memory_bytes: int) -> None:
    """Let this process take no more time and memory than it may; 0 bytes: no bound."""
    os.nice(_NICENESS)
    # Should the worker die meanwhile, nobody else ends this process.
    signal.alarm(math.ceil(seconds) + 1)
    if memory_bytes and sys.platform == "linux":  # elsewhere the kernel has no such bound
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def last_of(lines: bytes) -> dict[str, object]:
    """The last whole line that a child wrote."""
    whole = lines.split(b"\n")[:-1]
    if not whole:
        return {}
    last: dict[str, object] = orjson.loads(whole[-1])
    return last


def stage_of(lines: bytes) -> str:
    """What a child was at."""
    return str(last_of(lines).get("stage", "starting"))


def end_of(code: int) -> str:
    """How a child ended, from its return code."""
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
