"""One assigned version from pull to unload: carries it through its states, again and again until it is READY."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import structlog
import tenacity

from services.worker.domain.assignment import Assignment, Tuning, VersionSpec
from services.worker.domain.execution import Execution
from services.worker.domain.load_state import Life, LoadError, LoadState
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.loaded import Loaded
from services.worker.drivers.open_streams import ROUTES_MOVE_SECONDS
from services.worker.drivers.runner_parts import RunnerParts
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.text_loader import TextLoader
from services.worker.drivers.traffic import Traffic
from services.worker.drivers.version_loader import VersionLoader
from services.worker.ports.compute import Compute
from services.worker.ports.discovery import VersionReport
from services.worker.ports.registry import ConnectionLostError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Answering:
    """What has been loaded and still answers calls."""

    traffic: Traffic
    computing: asyncio.Task[None]


class VersionRunner:
    """Owns one version on this worker; `run` ends when the version is gone."""

    def __init__(self, assignment: Assignment, parts: RunnerParts) -> None:
        self.assignment = assignment
        self.statistics = VersionStatistics()
        self._loaded_now: Loaded | None = None  # what takes the calls
        self._life = Life()
        self._parts = parts
        self._released = asyncio.Event()
        self._again = asyncio.Event()
        self._retuned = asyncio.Event()  # what measuring found has changed
        loader = TextLoader if assignment.spec.is_language else VersionLoader
        self._loader = loader(parts, self.statistics, self._progressed)
        self._answering: dict[Compute, _Answering] = {}  # the last one takes calls
        # Holds on the cached files, until what was loaded from them is gone.
        self._kept: list[AsyncExitStack] = []

    @property
    def spec(self) -> VersionSpec:
        """The version."""
        return self.assignment.spec

    @property
    def served(self) -> ServedVersion | ServedText | None:
        """What takes the calls; None: nothing is loaded."""
        return None if self._loaded_now is None else self._loaded_now.served

    @property
    def execution(self) -> Execution | None:
        """How it is run, once it is loaded."""
        return None if self._loaded_now is None else self._loaded_now.execution

    @property
    def state(self) -> LoadState:
        """Where the version stands."""
        return self._life.state

    def report(self) -> VersionReport:
        """State and counters as of now."""
        life, counters = self._life, self.statistics.counters()
        served = self.served
        engine = served.engine.load() if isinstance(served, ServedText) else None
        return VersionReport(
            self.spec.name, life.state, life.reason, counters, self.execution, engine
        )

    def release(self) -> None:
        """The version is no longer assigned: finish its calls, then unload."""
        self._released.set()

    def accepts(self, spec: VersionSpec) -> bool:
        """Whether it can become that without being unloaded: the same but for what measuring found."""
        return _untuned(spec) == _untuned(self.spec)

    def reassign(self, assignment: Assignment) -> None:
        """Its placement was made anew (a load that failed is tried at once), or it is to run by another tuning."""
        if assignment.spec != self.spec:
            self._retuned.set()
        self.assignment = assignment
        self._again.set()

    async def run(self) -> None:
        """Load until it works, serve until released, drain, unload."""
        name = self.spec.name
        try:
            async with self._loaded() as loaded:
                if loaded is not None:
                    await self._serve(loaded)
        finally:
            for kept in self._kept:
                await kept.aclose()
            self._parts.streams.forget(str(name))
            self._to(LoadState.GONE)
            _log.info("version unloaded", version=str(name))

    @asynccontextmanager
    async def _loaded(self) -> AsyncIterator[Loaded | None]:
        """The version loaded, or None if it was released before."""
        loading = asyncio.create_task(self._load_until_it_works())
        released = asyncio.create_task(self._released.wait())
        try:
            await asyncio.wait({loading, released}, return_when=asyncio.FIRST_COMPLETED)
            yield loading.result() if loading.done() else None
        finally:
            for task in (loading, released):
                task.cancel()
            await asyncio.gather(loading, released, return_exceptions=True)

    async def _serve(self, loaded: Loaded) -> None:
        service = str(self.spec.name)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._begin(loaded, tasks)
                await self._parts.health.set_health(service, serving=True)
                self._to(LoadState.READY)
                loops = [
                    tasks.create_task(self._watch()),
                    tasks.create_task(self._follow_tuning(loaded, tasks)),
                ]
                await self._released.wait()
                for loop in loops:
                    loop.cancel()
                await self._drain()
                for answering in self._answering.values():
                    answering.computing.cancel()
        finally:
            if self._loaded_now is not None:
                self._loaded_now.end_reruns()
            self._loaded_now = None
            await self._parts.health.set_health(service, serving=False)
            self._parts.meter.hide(self.spec.name)
            if self._parts.languages is not None:
                self._parts.languages.engines.hide(self.spec.name)

    def _begin(self, loaded: Loaded, tasks: asyncio.TaskGroup) -> None:
        """From now on this one takes the calls."""
        computing = tasks.create_task(loaded.compute.run())
        self._answering[loaded.compute] = _Answering(loaded.served.traffic, computing)
        self._loaded_now = loaded
        self._parts.changed()

    async def _follow_tuning(self, loaded: Loaded, tasks: asyncio.TaskGroup) -> None:
        """Run by what the registry keeps of measuring: what follows is loaded beside, then takes over."""
        while True:
            if loaded.measured is not None:
                await self._keep(loaded.measured)
            await self._retuned.wait()
            self._retuned.clear()
            is_wanted = self.spec.settings.auto_tune and self.spec.tuning is None
            if self.spec.tuning == loaded.tuning and not is_wanted:
                continue
            try:
                following = await self._load()
            except LoadError as error:
                _log.warning("another tuning fails", version=str(self.spec.name), reason=str(error))
                continue
            self._begin(following, tasks)
            await self._retire(loaded)
            loaded = following

    async def _retire(self, loaded: Loaded) -> None:
        """Its calls end, then it is unloaded."""
        defaults = self._parts.defaults
        answering = self._answering[loaded.compute]
        await answering.traffic.until_quiet(defaults.quiet_seconds, defaults.drain_seconds)
        await _end(answering.computing)
        del self._answering[loaded.compute]
        loaded.end_reruns()
        await loaded.kept.aclose()
        self._kept.remove(loaded.kept)

    async def _keep(self, tuning: Tuning) -> None:
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(ConnectionLostError),
            wait=tenacity.wait_exponential_jitter(max=self._parts.defaults.longest_backoff),
        )
        async for attempt in attempts:
            with attempt:
                await self._parts.tunings.keep(self.spec.name, tuning)

    async def _watch(self) -> None:
        """READY only while runs come to an end; a run that never does cannot be stopped, only avoided."""
        defaults, service = self._parts.defaults, str(self.spec.name)
        while True:
            await asyncio.sleep(defaults.look_seconds)
            assert self._loaded_now is not None
            seconds = self._loaded_now.compute.stuck_for(defaults.stall_seconds)
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

    async def _drain(self) -> None:
        defaults = self._parts.defaults
        self._to(LoadState.DRAINING)
        await self._parts.health.set_health(str(self.spec.name), serving=False)
        try:
            async with asyncio.timeout(defaults.drain_seconds):
                await self._parts.announced()
        except TimeoutError:
            _log.warning("discovery not told that a version drains", version=str(self.spec.name))
        if self._parts.streams.use(str(self.spec.name)):
            await self._until_quiet(min(ROUTES_MOVE_SECONDS, defaults.drain_seconds / 2))
        self._parts.streams.end_version(str(self.spec.name))
        if not await self._until_quiet(defaults.drain_seconds):
            _log.warning(
                "version unloaded with calls in flight",
                version=str(self.spec.name),
                in_flight=sum(one.traffic.in_flight for one in self._answering.values()),
            )

    async def _until_quiet(self, within: float) -> bool:
        """Whether its calls ended, and none came for a while."""
        quiet_seconds = self._parts.defaults.quiet_seconds
        quiet = [one.traffic.until_quiet(quiet_seconds, within) for one in self._answering.values()]
        return all(await asyncio.gather(*quiet))

    async def _load_until_it_works(self) -> Loaded:
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

    async def _load(self) -> Loaded:
        self._retuned.clear()
        loaded = await self._loader.load(self.spec)
        self._kept.append(loaded.kept)
        return loaded

    def _progressed(self, state: LoadState) -> None:
        """While it is loaded beside, its state is that of what serves."""
        if self._loaded_now is None:
            self._to(state)

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


def _untuned(spec: VersionSpec) -> VersionSpec:
    return replace(spec, tuning=None, settings=replace(spec.settings, auto_tune=False))


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
