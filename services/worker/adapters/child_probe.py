"""Runs the probe in a child process and turns however that ends into a report or a reason."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import TypeAdapter

from services.worker.adapters import probe_order
from services.worker.adapters.probe_order import ProbeOrder
from services.worker.adapters.trial_process import end_of, last_of, stage_of
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.load_state import LoadError
from services.worker.ports.session import ProbeReport

_log = structlog.get_logger(__name__)

_MODULE = "services.worker.tensor_probe"
_LOGGED_BYTES = 2000
_REPORT = TypeAdapter(ProbeReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBounds:
    """Defaults and limits of every try."""

    intra_op_threads: int
    execution_providers: tuple[str, ...]
    max_batch_size: int
    memory_bytes: int  # 0: no bound
    seconds: float  # for all of a try
    tune_seconds: float  # more, for measuring

    def order(self, spec: VersionSpec, folder: Path, tune_seconds: float = 0.0) -> ProbeOrder:
        """What a child is told about a version; measuring comes on top of the time for a try."""
        return ProbeOrder(
            spec=spec,
            folder=folder,
            intra_op_threads=self.intra_op_threads,
            execution_providers=self.execution_providers,
            max_batch_size=self.max_batch_size,
            memory_bytes=self.memory_bytes,
            seconds=self.seconds + tune_seconds,
            tune_seconds=tune_seconds,
        )


class ChildProbe:
    """Probe in a process of its own."""

    def __init__(self, bounds: ProbeBounds) -> None:
        """Assign only."""
        self._bounds = bounds

    async def examine(self, spec: VersionSpec, folder: Path) -> ProbeReport:
        """Load, compare with the signature, run examples. Raises LoadError."""
        measures = spec.settings.auto_tune and spec.tuning is None
        order = self._bounds.order(spec, folder, self._bounds.tune_seconds if measures else 0.0)
        lines, errors, code = await self._run(probe_order.to_json(order), order.seconds)
        if errors:
            tail = errors[-_LOGGED_BYTES:].decode(errors="replace")
            _log.warning("probe wrote errors", version=str(spec.name), text=tail)
        return self._report(lines, code)

    async def _run(self, order: bytes, seconds: float) -> tuple[bytes, bytes, int]:
        """What the child wrote, to both pipes, and its exit status. Raises LoadError if it takes too long."""
        # Not the event loop's own subprocesses: uvloop's fork runs gRPC's fork handlers, which may hang; Popen's vfork
        # runs none.
        try:
            child = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise LoadError(f"no process to try it in: {error}") from error
        try:
            lines, errors = await asyncio.to_thread(child.communicate, order, seconds)
        except subprocess.TimeoutExpired as error:
            child.kill()
            lines, _ = await asyncio.to_thread(child.communicate)
            raise LoadError(
                f"it was still {stage_of(lines)} after {seconds:g} s"
                " (INFERPLANE_LOAD_TIMEOUT_SECONDS)"
            ) from error
        finally:  # also when this is cancelled: the thread ends with the child
            if child.returncode is None:
                child.kill()
        return lines, errors, child.returncode

    def _report(self, lines: bytes, code: int) -> ProbeReport:
        last = last_of(lines)
        if "error" in last:
            raise LoadError(str(last["error"]))
        if "report" in last:
            return _REPORT.validate_python(last["report"])
        raise LoadError(
            f"it crashed a trial process ({end_of(code)}) while {stage_of(lines)}; it may have"
            f" {self._bounds.memory_bytes} bytes (INFERPLANE_LOAD_MEMORY_BYTES)"
        )
