"""Runs the probe in a child process and turns however that ends into a report or a reason."""

import asyncio
import signal
import sys
from pathlib import Path

import orjson
import structlog

from services.worker.adapters import probe_order
from services.worker.adapters.probe_order import ProbeOrder
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.load_state import LoadError
from services.worker.ports.session import ProbeReport

_log = structlog.get_logger(__name__)

_MODULE = "services.worker.tensor_probe"
_LOGGED_BYTES = 2000


class ChildProbe:
    """Probe in a process of its own."""

    def __init__(
        self,
        *,
        intra_op_threads: int,
        execution_providers: tuple[str, ...],
        memory_bytes: int,
        seconds: float,
    ) -> None:
        """Assign only; `memory_bytes` 0: no bound, `seconds`: for all of a try."""
        self._threads = intra_op_threads
        self._providers = execution_providers
        self._memory_bytes = memory_bytes
        self._seconds = seconds

    async def examine(self, spec: VersionSpec, folder: Path) -> ProbeReport:
        """Load, compare with the signature, run examples. Raises LoadError."""
        order = ProbeOrder(
            spec=spec,
            folder=folder,
            intra_op_threads=self._threads,
            execution_providers=self._providers,
            memory_bytes=self._memory_bytes,
            seconds=self._seconds,
        )
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        lines = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                errors = await _talk(child, probe_order.to_json(order), lines)
        except TimeoutError as error:
            raise LoadError(
                f"it was still {_stage(lines)} after {self._seconds:g} s"
                " (INFERPLANE_LOAD_TIMEOUT_SECONDS)"
            ) from error
        finally:
            await _end(child)
        if errors:
            tail = errors[-_LOGGED_BYTES:].decode(errors="replace")
            _log.warning("probe wrote errors", version=str(spec.name), text=tail)
        return self._report(child, bytes(lines))

    def _report(self, child: asyncio.subprocess.Process, lines: bytes) -> ProbeReport:
        last = _last(lines)
        if "error" in last:
            raise LoadError(str(last["error"]))
        if "batchable" in last:
            return ProbeReport(bool(last["batchable"]), str(last["reason"]))
        code = child.returncode or 0
        how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
        raise LoadError(
            f"it crashed a trial process ({how}) while {_stage(lines)}; it may have"
            f" {self._memory_bytes} bytes (INFERPLANE_LOAD_MEMORY_BYTES)"
        )


async def _talk(child: asyncio.subprocess.Process, order: bytes, lines: bytearray) -> bytes:
    """Give the order, collect lines until the child ends; returns what it wrote to stderr."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    errors = asyncio.create_task(child.stderr.read())
    try:
        child.stdin.write(order)
        child.stdin.close()
        async for line in child.stdout:
            lines += line
        await child.wait()
        return await errors
    finally:
        errors.cancel()


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.kill()
        await child.wait()


def _last(lines: bytes | bytearray) -> dict[str, object]:
    """The last whole line."""
    whole = bytes(lines).split(b"\n")[:-1]
    if not whole:
        return {}
    last: dict[str, object] = orjson.loads(whole[-1])
    return last


def _stage(lines: bytes | bytearray) -> str:
    return str(_last(lines).get("stage", "starting"))
