"""Watches what projects spend: notes what alerts are to tell, and tells it until it is taken."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from prometheus_client import CollectorRegistry, Counter

from services.metering.domain.money import format_amount
from services.metering.domain.spending import (
    MOST_ALERTS,
    AlertInput,
    Notice,
    SpendingAlert,
    checked_alert,
    parse_alert,
)
from services.metering.ports.alert_store import AlertStore, Webhook
from services.metering.ports.project_lookup import ProjectLookup
from services.rpc.clock import Clock
from services.rpc.errors import InferplaneError, NotFoundError
from services.rpc.names import ProjectName

_log = structlog.get_logger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = 16  # deliveries
_LONGEST_WAIT_US = 24 * 3600 * 10**6  # for a webhook to take a notice
_LOOK_SECONDS = 60.0  # where other processes note and tell, too
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0  # seconds, after a delivery that was not taken


class Spending:
    """Used on the event loop."""

    def __init__(
        self,
        store: AlertStore,
        webhook: Webhook,
        projects: ProjectLookup,
        clock: Clock,
        *,
        metrics: CollectorRegistry,
    ) -> None:
        self._store = store
        self._webhook = webhook
        self._projects = projects
        self._clock = clock
        self._watched: set[str] = set()  # projects with alerts
        self._waiting: set[tuple[str, int]] = set()  # project and month
        self._woken = asyncio.Event()
        self._look_at: float | None = (
            None  # another process may end before it has told; None: there is none
        )
        self._told = Counter(
            "inferplane_spending_notices", "Alerts of spending that were told.", registry=metrics
        )
        self._refused = Counter(
            "inferplane_spending_webhook_failures",
            "Notices that a webhook did not take; they are sent again.",
            registry=metrics,
        )
        self._given_up = Counter(
            "inferplane_spending_notices_given_up",
            "Notices that no webhook took within 24 hours, or whose alert has none any more.",
            registry=metrics,
        )

    async def load(self) -> None:
        """Look at all that was spent: a process that ended may not have told of it."""
        self._store.follow(self._watched.update)
        self._watched |= {alert.project for alert in await self._store.alerts("")}
        await self._look_again()

        self._woken.set()
        if self._store.is_shared:
            self._look_at = self._clock.monotonic() + _LOOK_SECONDS

    async def _look_again(self) -> None:
        self._waiting.update(await self._store.months(self._watched))

    def spent(self, more: Mapping[tuple[str, int], int]) -> None:
        """Projects have spent more in months."""
        watched = {key for key in more if key[0] in self._watched}
        if watched:
            self._waiting |= watched
            self._woken.set()

    async def set_alert(self, given: AlertInput) -> SpendingAlert:
        """Make an alert, or change it; NotFoundError if there is no such project."""
        alert = checked_alert(given, self._now_us())
        await self._projects.get(ProjectName(alert.project))
        stored = await self._store.put(alert, MOST_ALERTS)
        self._watched.add(alert.project)
        self._waiting.update(await self._store.months({alert.project}))
        self._woken.set()
        return stored

    async def alerts(self, project: str) -> Sequence[SpendingAlert]:
        """Of a project, or of all (empty)."""
        return await self._store.alerts(project)

    async def delete_alert(self, name: str) -> None:
        """NotFoundError if there is none."""
        if not await self._store.delete(*parse_alert("name", name)):
            raise NotFoundError(f"there is no {name}", metadata={"name": name})
        self._woken.set()  # its notices have nowhere to go

    async def notices(self, project: str, before: int, most: int) -> Sequence[Notice]:
        """The newest ones with a smaller id."""
        return await self._store.notices(project, before, most)

    async def run(self) -> None:
        """Until cancelled."""
        pause = _FIRST_PAUSE
        until: float | None = None
        while True:
            await self._clock.wait(self._woken, until)
            self._woken.clear()
            if await self._told_all():
                pause, until = _FIRST_PAUSE, self._look_at
            else:
                until = self._clock.monotonic() + pause
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _told_all(self) -> bool:
        """Whether there is nothing left to tell; if the store fails, there is."""
        try:
            if self._look_at is not None and self._clock.monotonic() >= self._look_at:
                await self._look_again()
                self._look_at = self._clock.monotonic() + _LOOK_SECONDS
            await self._tell()
            return await self._deliver()
        except InferplaneError as error:
            _log.error("spending not told, trying again", reason=error.message)
            return False

    async def _tell(self) -> None:
        while self._waiting:
            one = self._waiting.pop()  # first, as it may be put there again meanwhile
            try:
                notices = await self._store.tell(*one, self._now_us())
            except InferplaneError:
                self._waiting.add(one)
                raise
            for notice in notices:
                self._told.inc()
                _log.warning(
                    "spending alert",
                    notice=notice.name,
                    percent=notice.percent,
                    spent=format_amount(notice.spent),
                    monthly_amount=format_amount(notice.monthly_amount),
                )

    async def _deliver(self) -> bool:
        """Whether all that waited was taken."""
        if self._store.is_shared and not await self._store.undelivered(0, 1):
            await self._give_up()
            return True
        async with self._store.alone():  # not told twice as long as the store can be reached
            return await self._deliver_waiting()

    async def _deliver_waiting(self) -> bool:
        """The same; one that is not taken holds up no others."""
        after, taken = 0, True
        while waiting := await self._store.undelivered(after, _AT_ONCE):
            taken &= all(await asyncio.gather(*map(self._deliver_one, waiting)))
            after = waiting[-1].id
        await self._give_up()
        return taken

    async def _give_up(self) -> None:
        """After a try at least, however long this process was away."""
        for notice in await self._store.give_up(self._now_us() - _LONGEST_WAIT_US):
            self._given_up.inc()
            _log.error("spending notice given up: no webhook took it", notice=notice.name)

    async def _deliver_one(self, notice: Notice) -> bool:
        if not await self._webhook.post(notice):
            self._refused.inc()
            return False
        await self._store.delivered(notice, self._now_us())
        return True

    def _now_us(self) -> int:
        return (self._clock.now() - _EPOCH) // timedelta(microseconds=1)
