"""Who is alive as far as the router knows: discovery's word, softened where discovery itself was away.

A registry that restarts has forgotten every lease until the workers renew. So after a reconnect, workers that were
known before and are not heard of again are kept for one lease time. `now` is an argument; any monotonic clock will do.
"""

from collections.abc import Iterable

from services.router.domain.topology import Worker


class WorkerDirectory:
    """The workers to route to."""

    def __init__(self, *, lease: float) -> None:
        """Assign only.

        Args:
            lease: seconds that a worker is kept which a reconnected discovery doesn't know (yet).
        """
        self._lease = lease
        self._confirmed: dict[str, Worker] = {}
        self._doubtful: dict[str, Worker] = {}
        self._doubt_ends = 0.0
        self._was_lost = False
        self._first_heard: float | None = None

    def hear(self, workers: Iterable[Worker], now: float) -> None:
        """Take the complete list of live workers from discovery."""
        before = {**self._doubtful, **self._confirmed}
        self._confirmed = {worker.name: worker for worker in workers}
        if self._was_lost:
            self._was_lost = False
            self._doubtful = before
            self._doubt_ends = now + self._lease
        if self._first_heard is None:
            self._first_heard = now
        # An address is one process': who lives there now is not the one that was known there before.
        taken = {worker.address for worker in self._confirmed.values()}
        self._doubtful = {
            name: worker
            for name, worker in self._doubtful.items()
            if name not in self._confirmed and worker.address not in taken
        }

    def lose(self) -> None:
        """Discovery is away: keep what is known until it is back."""
        self._was_lost = self._first_heard is not None

    def live(self, now: float) -> tuple[Worker, ...]:
        """Workers to route to, by name."""
        if now >= self._doubt_ends:
            self._doubtful = {}
        known = {**self._doubtful, **self._confirmed}
        return tuple(known[name] for name in sorted(known))

    def next_change(self, now: float) -> float | None:
        """When `live` changes without anything being heard; None: it doesn't."""
        return self._doubt_ends if self._doubtful and now < self._doubt_ends else None

    def heard_for(self, now: float) -> float | None:
        """Seconds since discovery was first heard; None: never."""
        return None if self._first_heard is None else now - self._first_heard
