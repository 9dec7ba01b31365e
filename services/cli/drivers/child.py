"""One supervised process: started, its output logged, started again when it dies, ended when asked."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.cli.domain.child_life import ChildLife, RestartPolicy, describe_exit
from services.cli.drivers.log_file import LogFile
from services.cli.drivers.output_pipe import OutputPipe
from services.cli.ports.narration import Narration

_LAUNCHER = str(Path(__file__).with_name("launch.py"))


@dataclass(frozen=True, slots=True)
class Start:
    """What one start of a child runs."""

    command: tuple[str, ...]  # an absolute path and its arguments
    environment: Mapping[str, str]
    metrics_address: str  # host:port that answers GET /metrics; empty: none
    sockets: tuple[Path, ...] = ()  # left behind by a killed process; removed after its end


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child that is to run."""

    name: str
    prepare: Callable[[int], Start]  # number of the start, from 1
    log: Path
    gate: Callable[[], Awaitable[None]] | None = None  # awaited before the first start


class Child:
    """Runs a `ChildSpec` until it is stopped. `pid` is None while no process runs."""

    def __init__(
        self,
        spec: ChildSpec,
        narration: Narration,
        changed: Callable[[], None],
        policy: RestartPolicy,
    ) -> None:
        """Assign only; `changed` is called whenever `pid` has changed."""
        self.spec = spec
        self.life = ChildLife(policy)
        self.start: Start | None = None
        self.pid: int | None = None
        self._narration = narration
        self._changed = changed
        self._log = LogFile(spec.log)
        self._stop = asyncio.Event()
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Keep a process running; returns after `stop`."""
        self._log.open()
        try:
            if self.spec.gate is not None:
                await self._unless_stopped(self.spec.gate())
            while not self.life.stops:
                how = await self._live()
                if self.life.stops:
                    self._ended(how)
                    return
                delay = self.life.died(time.monotonic())
                self._changed()
                lines = list(self._log.last_lines) if self.life.is_crash_looping else []
                self._narration.died(self.spec.name, how, delay, lines)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), delay)
        finally:
            self._log.close()
            self._done.set()

    def _ended(self, how: str) -> None:
        self.life.ended()
        self._changed()
        self._narration.stopped(self.spec.name, how)

    async def stop(self, grace: float) -> None:
        """Ask it to end, and end it by force after `grace` seconds; returns when it has ended."""
        self._ask_to_end()
        if self.pid is not None:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._done.wait(), grace)
        self.kill()
        await self._done.wait()

    def kill(self) -> None:
        """End it by force, now."""
        self._ask_to_end()
        self._signal_group(signal.SIGKILL)

    def _ask_to_end(self) -> None:
        self.life.stop()
        self._stop.set()

    async def _live(self) -> str:
        """One life of the process; returns how it ended."""
        self._log.last_lines.clear()
        self.life.started(time.monotonic())
        try:
            start = self.spec.prepare(self.life.starts)
            output = OutputPipe(self._take)
            with output.unless_lost():
                process = await self._spawn(start, output)
        except OSError as error:  # no disk, no memory, no process left: may pass
            self._log.last_lines.append(str(error))
            return f"could not be started ({error})"
        transport = await output.begin()
        self.start, self.pid = start, process.pid
        if self.life.stops:  # asked to end while it was being started
            self._signal_group(signal.SIGKILL)
        self._narration.started(self.spec.name, process.pid)
        self._changed()
        code = await process.wait()
        self._signal_group(signal.SIGKILL)  # what it started itself must not outlive it
        self.pid = None
        await output.finish(transport)
        for socket in start.sockets:
            socket.unlink(missing_ok=True)
        return describe_exit(code)

    @staticmethod
    async def _spawn(start: Start, output: OutputPipe) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", _LAUNCHER, str(os.getpid())),
            *start.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output.writing_end,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(start.environment),
            process_group=0,  # Ctrl-C at the terminal reaches the supervisor alone
        )

    def _take(self, line: bytes) -> None:
        self._log.write(line)
        self._narration.line(self.spec.name, line.decode(errors="replace"))

    async def _unless_stopped(self, work: Awaitable[None]) -> None:
        waiting = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not waiting.done():
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
        else:
            waiting.result()

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _signal_group(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
