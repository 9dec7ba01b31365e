"""One assigned version from pull to unload: carries it through its states, again and again until it is READY."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import structlog
import tenacity

from services.worker.domain.assignment import Assignment, VersionSpec
from services.worker.domain.execution import Execution
from services.worker.domain.load_state import Life, LoadError, LoadState
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.runner_parts import RunnerParts
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.version_loader import VersionLoader
from services.worker.ports.discovery import VersionReport

_log = structlog.get_logger(__name__)


class VersionRunner:
    """Owns one version on this worker; `run` ends when the version is gone."""

    def __init__(self, assignment: Assignment, parts: RunnerParts) -> None:
        self.assignment = assignment
        self.statistics = VersionStatistics()
        self.served: ServedVersion | None = None
        self._life = Life()
        self._parts = parts
        self._released = asyncio.Event()
        self._again = asyncio.Event()
        self._loader = VersionLoader(parts, self.statistics, self._to)
        self.execution: Execution | None = None  # how it is run, once it is loaded
        self._kept = AsyncExitStack()  # the hold on the cached files, until the version is gone

    @property
    def spec(self) -> VersionSpec:
        """The version."""
        return self.assignment.spec

    @property
    def state(self) -> LoadState:
        """Where the version stands."""
        return self._life.state

    def report(self) -> VersionReport:
        """State and counters as of now."""
        counters = self.statistics.counters()
        return VersionReport(self.spec.name, self._life.state, self._life.reason, counters)

    def release(self) -> None:
        """The version is no longer assigned: finish its calls, then unload."""
        self._released.set()

    def reassign(self, assignment: Assignment) -> None:
        """Its placement was made anew: a load that failed is tried at once."""
        self.assignment = assignment
        self._again.set()

    async def run(self) -> None:
        """Load until it works, serve until released, drain, unload."""
        name = self.spec.name
        try:
            async with self._loaded() as served:
                if served is not None:
                    await self._serve(served)
        finally:
            await self._kept.aclose()
            self._parts.streams.forget(str(name))
            self._to(LoadState.GONE)
            _log.info("version unloaded", version=str(name))

    @asynccontextmanager
    async def _loaded(self) -> AsyncIterator[ServedVersion | None]:
        """The version READY, or None if it was released before."""
        loading = asyncio.create_task(self._load_until_it_works())
        released = asyncio.create_task(self._released.wait())
        try:
            await asyncio.wait({loading, released}, return_when=asyncio.FIRST_COMPLETED)
            yield loading.result() if loading.done() else None
        finally:
            for task in (loading, released):
                task.cancel()
            await asyncio.gather(loading, released, return_exceptions=True)

    async def _serve(self, served: ServedVersion) -> None:
        computing = asyncio.create_task(served.batcher.run())
        released = asyncio.create_task(self._released.wait())
        watching: asyncio.Task[None] | None = None
        service = str(self.spec.name)
        try:
            self.served = served
            await self._parts.health.set_health(service, serving=True)
            self._to(LoadState.READY)
            watching = asyncio.create_task(self._watch(served))
            await asyncio.wait({computing, released, watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in (computing, watching):
                if task.done():
                    task.result()
            await _end(watching)
            await self._drain(served)
        finally:
            self.served = None
            await _end(*filter(None, (computing, released, watching)))
            await self._parts.health.set_health(service, serving=False)
            self._parts.meter.hide(self.spec.name)

    async def _watch(self, served: ServedVersion) -> None:
        """READY only while runs come to an end; a run that never does cannot be stopped, only avoided."""
        defaults, service = self._parts.defaults, str(self.spec.name)
        while True:
            await asyncio.sleep(defaults.look_seconds)
            seconds = served.batcher.stuck_for(defaults.stall_seconds)
            was_stuck = self._life.state is LoadState.FAILED
            if (seconds is not None) == was_stuck:
                continue
            if seconds is not None:
                reason = f"no progress for {seconds:.0f} s: a run is still computing"
                self._to(LoadState.FAILED, reason)
                _log.error("version stuck", version=service, seconds=round(seconds, 1))
            else:
                self._to(LoadState.READY)
                _log.info("version computes again", version=service)
            await self._parts.health.set_health(service, serving=seconds is None)

    async def _drain(self, served: ServedVersion) -> None:
        defaults = self._parts.defaults
        self._to(LoadState.DRAINING)
        await self._parts.health.set_health(str(self.spec.name), serving=False)
        try:
            async with asyncio.timeout(defaults.drain_seconds):
                await self._parts.announced()
        except TimeoutError:
            _log.warning("discovery not told that a version drains", version=str(self.spec.name))
        self._parts.streams.end_version(str(self.spec.name))
        if not await served.traffic.until_quiet(defaults.quiet_seconds, defaults.drain_seconds):
            _log.warning(
                "version unloaded with calls in flight",
                version=str(self.spec.name),
                in_flight=served.traffic.in_flight,
            )

    async def _load_until_it_works(self) -> ServedVersion:
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(LoadError),
            wait=tenacity.wait_exponential_jitter(
                initial=1, max=self._parts.defaults.longest_backoff
            ),
            before_sleep=self._note_failure,
            sleep=self._sleep,
        )
        async for attempt in attempts:
            with attempt:
                return await self._load()
        raise AssertionError("attempts have no end")

    async def _load(self) -> ServedVersion:
        loaded = await self._loader.load(self.spec)
        self._kept = loaded.kept
        self.execution = loaded.execution
        return loaded.served

    def _to(self, state: LoadState, reason: str = "") -> None:
        self._life.to(state, reason)
        self._parts.changed()

    def _note_failure(self, state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        reason = str(state.outcome.exception())
        self._again.clear()
        self._to(LoadState.FAILED, reason)
        _log.error(
            "version failed to load",
            version=str(self.spec.name),
            reason=reason,
            attempt=state.attempt_number,
            next_attempt_in=round(state.upcoming_sleep, 1),
        )

    async def _sleep(self, seconds: float) -> None:
        """Back-off that a new placement cuts short."""
        try:
            async with asyncio.timeout(seconds):
                await self._again.wait()
        except TimeoutError:
            return


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
