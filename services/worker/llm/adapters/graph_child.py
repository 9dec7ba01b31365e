"""Writes a model's graph in a process of its own: files that crash it or take all memory harm nobody here."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from services.worker.adapters.trial_process import end_of, last_of, stage_of
from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.engine_settings import Target

_log = structlog.get_logger(__name__)

_MODULE = "services.worker.llm_build"
_LOGGED_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildBounds:
    """What the process may take."""

    memory_bytes: int = 8 * 1024**3  # of address space; 0: no bound
    seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """What it is told."""

    place: Path  # the model's file, or the folder with its files
    folder: Path  # where the graph goes
    target: Target
    exact: bool = False
    bounds: BuildBounds = BuildBounds()

    def to_json(self) -> bytes:
        """As `from_json` reads it."""
        return orjson.dumps(
            {
                "place": str(self.place),
                "folder": str(self.folder),
                "target": self.target.value,
                "exact": self.exact,
                "memory_bytes": self.bounds.memory_bytes,
                "seconds": self.bounds.seconds,
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> "BuildOrder":
        """The order that `to_json` wrote."""
        said = orjson.loads(text)
        return cls(
            place=Path(said["place"]),
            folder=Path(said["folder"]),
            target=Target(said["target"]),
            exact=said["exact"],
            bounds=BuildBounds(memory_bytes=said["memory_bytes"], seconds=said["seconds"]),
        )


def build(order: BuildOrder) -> None:
    """Blocks until the graph is written. Raises LoadError."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise LoadError(f"no process to write its graph in: {error}") from error
    try:
        lines, errors = child.communicate(order.to_json(), order.bounds.seconds)
    except subprocess.TimeoutExpired as error:
        child.kill()
        lines, _ = child.communicate()
        raise LoadError(
            f"it was still {stage_of(lines)} after {order.bounds.seconds:g} s"
        ) from error
    finally:
        if child.returncode is None:
            child.kill()
    if errors:
        _log.warning(
            "graph writer wrote errors", text=errors[-_LOGGED_BYTES:].decode(errors="replace")
        )
    _judge(order, lines, child.returncode)


def _judge(order: BuildOrder, lines: bytes, code: int) -> None:
    last = last_of(lines)
    if "error" in last:
        raise LoadError(str(last["error"]))
    if "written" not in last:
        raise LoadError(
            f"it crashed the process that writes its graph ({end_of(code)}) while {stage_of(lines)};"
            f" it may have {order.bounds.memory_bytes} bytes (INFERPLANE_LOAD_MEMORY_BYTES)"
        )
