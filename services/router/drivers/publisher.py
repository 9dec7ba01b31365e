"""The publisher: hears registry, discovery and metering, works out the picture, publishes it whole or says why not."""

import asyncio
from collections.abc import Sequence

import structlog

from services.router.domain.catalog import Catalog, CatalogUpdate
from services.router.domain.policy import PolicyBook, PolicyUpdate
from services.router.domain.publication import Publication
from services.router.domain.snapshot import InconsistentSnapshotError, Kind, Snapshot
from services.router.domain.topology import Topology, UnresolvedTargetError, Worker, route
from services.router.domain.worker_directory import WorkerDirectory
from services.router.drivers.board import Board
from services.router.ports.feeds import Builder, Clock

_log = structlog.get_logger(__name__)


class Publisher:
    """Implements the sinks of ports/feeds.py; `run` publishes on the board whatever follows from what was heard."""

    def __init__(self, *, board: Board, builder: Builder, clock: Clock, lease: float) -> None:
        """Assign only.

        Args:
            board: where publications go.
            builder: makes resources of a topology.
            clock: for leases and publish times.
            lease: seconds that a worker is kept after discovery was away, and that the first picture has to settle.
        """
        self._board = board
        self._builder = builder
        self._clock = clock
        self._lease = lease
        self._catalog = Catalog()
        self._directory = WorkerDirectory(lease=lease)
        self._policy = PolicyBook()
        self._changed = asyncio.Event()
        self.refused = ""  # why the newest picture was not published
        self.registry_connected = False
        self.discovery_connected = False
        self.metering_connected = False

    def hear_registry(self, update: CatalogUpdate) -> None:
        self.registry_connected = True
        if self._catalog.apply(update):
            self._changed.set()

    def lose_registry(self) -> None:
        self.registry_connected = False

    def hear_discovery(self, workers: Sequence[Worker]) -> None:
        self.discovery_connected = True
        self._directory.hear(workers, self._clock.monotonic())
        self._changed.set()

    def lose_discovery(self) -> None:
        self.discovery_connected = False
        self._directory.lose()

    def hear_policy(self, update: PolicyUpdate) -> None:
        self.metering_connected = True
        if self._policy.apply(update):
            self._changed.set()

    def lose_metering(self) -> None:
        self.metering_connected = False

    async def run(self) -> None:
        """Publish after every change, for ever.

        Half of the time is for hearing: changes that come faster than they can be published are published together,
        so that a revocation never waits behind ten thousand of them.
        """
        while True:
            try:
                async with asyncio.timeout(self._until_next_change()):
                    await self._changed.wait()
            except TimeoutError:
                pass  # a kept worker's lease has ended, or the first picture has settled
            self._changed.clear()
            began = self._clock.monotonic()
            self._publish()
            await asyncio.sleep(self._clock.monotonic() - began)

    def _until_next_change(self) -> float | None:
        """Seconds until something changes without being heard; None: nothing does."""
        now = self._clock.monotonic()
        moments = [self._directory.next_change(now), self._settles_at(now)]
        waits = [moment - now for moment in moments if moment is not None]
        return max(min(waits), 0.0) if waits else None

    def _settles_at(self, now: float) -> float | None:
        heard_for = self._directory.heard_for(now)
        current = self._board.current
        if heard_for is None or current is None or current.settled:
            return None
        return now - heard_for + self._lease

    def _publish(self) -> None:
        now = self._clock.monotonic()
        heard_for = self._directory.heard_for(now)
        if not self._catalog.is_synced or heard_for is None:
            return  # half a world is not published
        try:
            catalog = self._catalog
            topology = route(
                catalog.endpoints,
                catalog.aliases,
                self._directory.live(now),
                catalog.stateful,
                catalog.language,
            )
            snapshot = self._snapshot(topology)
        except (InconsistentSnapshotError, UnresolvedTargetError) as error:
            self.refused = str(error)
            _log.error("picture refused, the last good one stays", reason=self.refused)
            self._publish_policy()
            return
        self.refused = ""
        current = self._board.current
        settled = (
            topology.is_served()
            or heard_for >= self._lease
            or (current is not None and current.settled)
        )
        self._post(snapshot, topology, settled=settled)

    def _publish_policy(self) -> None:
        """Who may call, with the last good word of where calls go: a revocation waits for no endpoint."""
        current = self._board.current
        if current is None:
            return
        try:
            snapshot = self._snapshot(current.topology)
        except InconsistentSnapshotError:
            return  # it is said already
        if snapshot.version != current.snapshot.version:
            self._post(snapshot, current.topology, settled=current.settled)

    def _snapshot(self, topology: Topology) -> Snapshot:
        """Before the policy is known Envoys keep the one they have; those that have none let nobody in."""
        policy = self._policy.current
        unknown = frozenset({Kind.FILTER}) if policy is None else frozenset[Kind]()
        return Snapshot.build(self._builder.build(topology, policy), unknown)

    def _post(self, snapshot: Snapshot, topology: Topology, *, settled: bool) -> None:
        current = self._board.current
        same = current is not None and current.snapshot.version == snapshot.version
        time = current.time if current is not None and same else self._clock.wall()
        self._board.post(
            Publication(snapshot=snapshot, topology=topology, time=time, settled=settled)
        )
        if not same:
            _log.info("published", snapshot=snapshot.version, endpoints=len(topology.endpoints))
