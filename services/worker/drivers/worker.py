"""The worker as a whole: what it reports, whether it is ready, and how it leaves without anybody noticing."""

import asyncio

import structlog

from services.worker.drivers.heartbeat import Heartbeat
from services.worker.drivers.open_streams import ROUTES_MOVE_SECONDS
from services.worker.drivers.roster import Roster
from services.worker.drivers.runner_parts import RunnerParts
from services.worker.drivers.traffic import Traffic
from services.worker.ports.discovery import WorkerReport
from services.worker.ports.health import Health

_log = structlog.get_logger(__name__)

_BEATS_PER_LEASE = 5


class Worker:
    """Owns roster and heartbeat; its loops are started by whoever composes it."""

    def __init__(self, *, lease_seconds: float, health: Health) -> None:
        """Assign only; `furnish` gives it what its versions need."""
        self.heartbeat = Heartbeat(self._report, lease_seconds / _BEATS_PER_LEASE)
        self._lease_seconds = lease_seconds
        self.traffic = Traffic()
        self._health = health
        self._draining = False
        self._roster: Roster | None = None

    def furnish(self, parts: RunnerParts) -> Roster:
        """Make the roster; once."""
        assert self._roster is None
        self._roster = Roster(parts)
        return self._roster

    def is_ready(self) -> bool:
        """Whether it takes calls and is to stay."""
        return not self._draining

    async def become_ready(self) -> None:
        """Say that it serves as a whole once it has loaded what it is to start with: another may go then.

        Until the registry has said what that is it doesn't know, however long that takes, and so does not serve.
        """
        assert self._roster is not None
        await self._roster.settled()
        await self._health.set_health("", serving=True)
        _log.info(
            "ready", versions={str(one.name): one.state.value for one in self._roster.reports()}
        )

    async def drain(self, quiet_seconds: float, within: float) -> None:
        """Tell everybody, then answer what still comes until nothing does; at most `within` seconds."""
        _log.info("draining", in_flight=self.traffic.in_flight)
        self._draining = True
        await self._health.set_health("", serving=False)
        for report in self._report().versions:
            await self._health.set_health(str(report.name), serving=False)
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        try:
            async with asyncio.timeout(min(self._lease_seconds, within / 2)):
                await self.heartbeat.announce()
        except TimeoutError:
            _log.warning("discovery not told of the drain; calls are answered until none come")
        if self._roster is not None:
            if len(self._roster.streams):
                moving = min(ROUTES_MOVE_SECONDS, (end - loop.time()) / 2)
                await self.traffic.until_quiet(quiet_seconds, max(0.0, moving))
            self._roster.streams.end_all()
        if not await self.traffic.until_quiet(quiet_seconds, max(0.0, end - loop.time())):
            _log.warning("calls still come after the grace time", in_flight=self.traffic.in_flight)

    def _report(self) -> WorkerReport:
        versions = self._roster.reports() if self._roster is not None else []
        return WorkerReport(self._draining, self.traffic.in_flight, versions)
