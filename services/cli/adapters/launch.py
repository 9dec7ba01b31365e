"""One `up`: checks that it can start, runs the mesh until it is asked to end, tells when it answers."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from services.cli.adapters import envoy, port_owner
from services.cli.adapters.access import credential_of
from services.cli.adapters.edge_target import edge_tls
from services.cli.adapters.mesh import Mesh, MeshSettings, metrics_targets
from services.cli.adapters.narrator import Narrator
from services.cli.adapters.readiness import (
    KeyRefusedError,
    wait_behind,
    wait_edge,
    wait_listening,
    wait_serving,
)
from services.cli.adapters.state_directory import RunningProcess, StateDirectory
from services.cli.domain.exit_code import StartError
from services.cli.drivers.supervisor import Supervisor

_DRAIN_SHARE = 0.8  # of the grace; the rest is for the processes to end


@dataclass(frozen=True, slots=True)
class Ready:
    """What is told when the edge answers."""

    seconds: float  # from the start
    edge: str
    workers: int
    pool: str


class Launch:
    """Runs the mesh of one state directory in the foreground."""

    def __init__(
        self,
        state: StateDirectory,
        settings: MeshSettings,
        narrator: Narrator,
        on_ready: Callable[[Ready], None],
        ready_seconds: float,
    ) -> None:
        """Assign only."""
        self._state = state
        self._settings = settings
        self._narrator = narrator
        self._on_ready = on_ready
        self._ready_seconds = ready_seconds
        self._mesh = Mesh(state, settings)
        self._supervisor = Supervisor(self._mesh.stages(), narrator, self._write_down)
        self._stop = asyncio.Event()
        self._hopeless = asyncio.Event()
        self._failure: StartError | None = None
        self._answered = False  # the edge has answered once
        self._begun = time.monotonic()

    def run(self) -> None:
        """Returns after a clean stop; StartError if it can't start or does not come to answer."""
        self._state.prepare()
        with self._state.held():
            for left in self._state.end_leftovers():
                self._narrator.say(
                    f"ended {left.name} (pid {left.pid}), left by a supervisor that died"
                )
            port_owner.check_free(self._settings.edge)
            envoy.program()
            self._state.forget_run()
            self._state.prepare()  # the folder of sockets is private before anybody makes one in it
            try:
                asyncio.run(self._run())
            finally:
                self._state.forget_run()
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._asked_to_end)
        loop.add_signal_handler(signal.SIGTERM, self._asked_to_end)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup: goes on
            loop.add_signal_handler(signal.SIGHUP, self._asked_to_end)
        self._write_down()
        self._state.write_services(self._mesh.services)
        await self._supervisor.run(self._until(), self._drain, self._settings.drain_seconds)

    def _asked_to_end(self) -> None:
        if self._stop.is_set():
            self._supervisor.hurry()
            return
        self._narrator.hush()
        self._narrator.say("stopping; once more stops at once")
        self._stop.set()

    async def _until(self) -> None:
        """Over when asked to end, or when the mesh does not come to answer."""
        if await self._first(self._become_ready()):
            await self._stop.wait()
        elif self._failure is not None:
            self._narrator.hush()

    async def _first(self, ready: Awaitable[None]) -> bool:
        """Whether the mesh answered before it was asked to end, or was hopeless."""
        becoming = asyncio.ensure_future(ready)
        others = [asyncio.create_task(e.wait()) for e in (self._stop, self._hopeless)]
        await asyncio.wait([becoming, *others], return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if becoming.done() and self._failure is None:
            becoming.result()
            return True
        becoming.cancel()
        with suppress(asyncio.CancelledError):
            await becoming
        return False

    async def _become_ready(self) -> None:
        edge, workers = str(self._settings.edge), self._settings.workers
        try:
            async with asyncio.timeout(self._ready_seconds):
                # It serves once it has written the first key.
                await wait_serving(self._mesh.services.metering)
                await self._until_answering(edge, workers)
        except TimeoutError:
            logs = self._state.logs
            self._failure = StartError(
                f"the edge did not answer within {self._ready_seconds:g} s; the logs are in {logs}",
                reason="NOT_READY",
            )
            return
        except KeyRefusedError:
            self._narrator.say(
                f"the edge lets the key in {self._state.admin_key} not in: it has ended, or was revoked"
            )
        self._narrator.settle()
        self._on_ready(Ready(time.monotonic() - self._begun, edge, workers, self._settings.pool))
        self._answered = True

    async def _until_answering(self, edge: str, workers: int) -> None:
        if edge_tls().is_on:
            services = self._mesh.services
            keyed = self._settings.auth == "required"
            await wait_behind(services.registry, services.router, workers, asks_for_keys=keyed)
            await wait_listening(self._settings.edge)
            return
        key = credential_of(self._state)
        await wait_edge(edge, workers, key.metadata if key else ())

    def _write_down(self) -> None:
        """Keep the records of what runs true, and see whether starting is hopeless."""
        try:
            self._write_records()
        except OSError as error:  # a full disk ends no service
            self._narrator.say(f"can't write down what runs: {error}")
        self._see_whether_hopeless()

    def _write_records(self) -> None:
        children = self._supervisor.children
        running = [("supervisor", os.getpid())]
        running += [(child.spec.name, child.pid) for child in children if child.pid is not None]
        records = [RunningProcess.of(name, pid) for name, pid in running]
        self._state.write_processes([record for record in records if record is not None])
        self._state.write_metrics_targets(metrics_targets(children))

    def _see_whether_hopeless(self) -> None:
        looping = [child for child in self._supervisor.children if child.life.is_crash_looping]
        if looping and not self._answered and not self._stop.is_set():
            self._failure = StartError(
                f"{looping[0].spec.name} dies again and again; its log is {looping[0].spec.log}",
                reason="CRASH_LOOP",
                metadata={"service": looping[0].spec.name, "log": str(looping[0].spec.log)},
            )
            self._hopeless.set()

    async def _drain(self, seconds: float) -> None:
        if self._answered:
            await envoy.drain(self._mesh.admin, seconds * _DRAIN_SHARE)
