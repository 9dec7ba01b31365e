"""Who is alive by Consul's word, softened where it is no proof. Plain values; `now` is an argument.

- A check that failed: the worker is kept for the rest of its lease. An agent that stood still fails the checks of all
  its workers at once, and those that live renew with their next beat.
- Consul was away: who was known before and is not alive by its first words is kept for the time of doubt. Agents that
  come back tell their services to the servers within half a minute.
- A worker that is not in the list any more: kept for the time of doubt, unless it had said that it leaves. Workers end
  their registrations; it is agents that lose them.
- An empty list: nobody is taken off for it. ACLs that forbid reading look the same, and so does a catalogue lost.
- The node of a worker's agent is down: that is the agent and not the worker; kept for the time of doubt.
- An address is one process': who is only kept goes when another lives at its address, and of two that live there the
  one that started last counts. Containers that are started again have the address of their dead.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inferplane.discovery.v1 import worker_pb2

from services.rpc.consul_worker import Entry

DOUBT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class _Known:
    entry: Entry
    until: float | None = None  # None: alive by Consul's word


class ConsulRoster:
    """Hears the list of services, tells who is alive."""

    def __init__(self, *, doubt: float = DOUBT) -> None:
        self._doubt = doubt
        self._known: dict[str, _Known] = {}
        self._is_lost = False
        self._doubt_ends = -math.inf
        self.was_heard = False

    def hear(self, entries: Iterable[Entry], now: float) -> None:
        """Take the complete list."""
        before = dict(self._live(now))
        if self._is_lost:
            self._is_lost = False
            self._doubt_ends = now + self._doubt
        self.was_heard = True
        listed = _best(entries)
        known = _alive(listed.values())
        taken = {one.entry.worker.address for one in known.values()}
        for name, old in before.items():
            if name in known or old.entry.worker.address in taken:
                continue
            until = self._kept_until(old, listed.get(name), now, is_empty=not listed)
            if until > now:
                newest = max(old.entry, listed.get(name, old.entry), key=lambda one: one.sequence)
                known[name] = _Known(newest, until)
        self._known = known

    def lose(self, now: float) -> None:
        """Consul is away: all that are alive stay until it is back."""
        self._known = self._live(now)
        self._is_lost = self.was_heard

    def live(self, now: float) -> tuple[worker_pb2.Worker, ...]:
        """Workers that count as alive, by name."""
        alive = self._live(now)
        return tuple(alive[name].entry.worker for name in sorted(alive))

    def next_change(self, now: float) -> float | None:
        """When `live` changes without anything being heard; None: it doesn't."""
        if self._is_lost:
            return None
        ends = [known.until for known in self._live(now).values() if known.until is not None]
        return min((end for end in ends if math.isfinite(end)), default=None)

    def _live(self, now: float) -> dict[str, _Known]:
        return {
            name: known
            for name, known in self._known.items()
            if self._is_lost or known.until is None or now < known.until
        }

    def _kept_until(
        self, old: _Known, listed: Entry | None, now: float, *, is_empty: bool
    ) -> float:
        """Until when a worker is kept that is not alive by the newest list."""
        if listed is None and old.entry.worker.draining:
            return now
        runs_out = old.until is not None and math.isfinite(old.until)
        if is_empty and not runs_out:
            return math.inf
        if old.until is not None and runs_out:
            since = old.until  # it runs already; hearing the same again is no news
        elif listed is None or listed.renews:
            since = now + self._doubt
        else:
            since = now + listed.patience
        return max(since, self._doubt_ends)


def _is_alive(entry: Entry) -> bool:
    return entry.renews and entry.node_is_well


def _alive(entries: Iterable[Entry]) -> dict[str, _Known]:
    """Who lives by Consul's word, one at each address: the one that started last."""
    at: dict[str, Entry] = {}
    for entry in entries:
        if _is_alive(entry):
            other = at.setdefault(entry.worker.address, entry)
            if _started(entry) > _started(other):
                at[entry.worker.address] = entry
    return {entry.worker.name: _Known(entry) for entry in at.values()}


def _started(entry: Entry) -> tuple[int, str]:
    return entry.worker.start_time.ToNanoseconds(), entry.worker.name


def _best(entries: Iterable[Entry]) -> dict[str, Entry]:
    """One entry of each worker: a worker that changed its agent may be in the list of both for a while."""
    best: dict[str, Entry] = {}
    for entry in entries:
        known = best.get(entry.worker.name)
        if known is None or _rank(entry) > _rank(known):
            best[entry.worker.name] = entry
    return best


def _rank(entry: Entry) -> tuple[bool, bool, int]:
    return _is_alive(entry), entry.renews, entry.sequence
