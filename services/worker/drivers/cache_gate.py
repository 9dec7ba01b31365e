"""The response cache in front of a version's batcher: equal requests are computed once, also those under way."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from services.rpc.errors import DeadlineExceededError, InferplaneError
from services.worker.domain.batch import Answer, Outputs
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.request_digest import RequestDigest, digest
from services.worker.domain.response_cache import ResponseCache
from services.worker.domain.statistics import VersionStatistics
from services.worker.ports.gate import Deliver, Gate, Ticket

# Callers that wait for others' computing; more are queued as if there were no cache.
_MOST_JOINED = 4096

# Requests of other priority or patience don't wait for each other.
Key = tuple[RequestDigest, int, float | None]


@dataclass(slots=True, eq=False)
class Asking:
    """One caller; equal only to itself."""

    request: InferRequest
    deadline: float | None
    deliver: Deliver | None  # None: told, or gone
    looked_ns: int = 0  # what looking it up took
    is_hit: bool = False  # answered by what was computed for another
    flight: "_Flight | None" = None  # what it waits for
    ticket: Ticket = None  # the batcher's, for one that has nothing to do with the cache


@dataclass(slots=True, eq=False)
class _Flight:
    """One computing, and all that wait for it."""

    key: Key
    first: Asking  # whose limits the computing has
    callers: dict[Asking, None] = field(default_factory=dict)
    ticket: Ticket = None


class CacheGate:
    """Gate that answers what it knows and remembers what it doesn't; errors are never kept."""

    def __init__(
        self,
        behind: Gate,
        cache: ResponseCache,
        version_digest: str,
        statistics: VersionStatistics,
        delivered: Callable[[], None],
    ) -> None:
        """Assign only, but for telling where the cache's size can be asked.

        Args:
            behind: computes.
            cache: of this version alone.
            version_digest: of its artifact.
            statistics: gets hits and misses.
            delivered: called after callers have been told of hits, to write many answers at once.
        """
        self._behind = behind
        self._cache = cache
        self._version_digest = version_digest
        self._statistics = statistics
        self._delivered = delivered
        self._flights: dict[Key, _Flight] = {}
        self._joined = 0  # callers beyond the first of each flight
        self._found: list[tuple[Asking, Outputs]] = []  # hits whose callers are told soon
        statistics.cache_bytes = lambda: cache.size

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Asking:
        """Answer it soon if the answer is known, let it wait with equal ones, or have it computed."""
        asking = Asking(request, deadline, deliver)
        if request.options.no_store:
            asking.ticket = self._behind.admit(request, deadline, deliver)
            return asking
        began = time.perf_counter_ns()
        key = digest(self._version_digest, request)
        outputs = self._cache.get(key, time.monotonic())
        asking.looked_ns = time.perf_counter_ns() - began
        if outputs is not None:
            self._tell_soon(asking, outputs)
        else:
            self._compute((key, request.options.priority, request.options.timeout), asking)
        return asking

    def leave(self, asking: Asking) -> None:
        """The caller has gone; what nobody waits for any more is not computed."""
        asking.deliver = None
        if asking.ticket is not None:
            self._behind.leave(asking.ticket)
        flight, asking.flight = asking.flight, None
        if flight is None:
            return
        del flight.callers[asking]
        self._joined -= 1
        if not flight.callers:
            self._joined += 1
            del self._flights[flight.key]
            self._behind.leave(flight.ticket)

    def _compute(self, key: Key, asking: Asking) -> None:
        """Wait with others for the same, or be the first. Raises what the batcher does."""
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(key, asking)
            flight.ticket = self._behind.admit(
                asking.request, asking.deadline, lambda answer: self._land(flight, answer)
            )
            self._flights[key] = flight
        elif self._joined >= _MOST_JOINED:
            asking.ticket = self._behind.admit(
                asking.request, asking.deadline, lambda answer: self._tell(asking, answer)
            )
            return
        else:
            self._joined += 1
        flight.callers[asking] = None
        asking.flight = flight

    def _land(self, flight: _Flight, answer: Answer) -> None:
        """The computing ended: keep the answer, tell all that wait."""
        del self._flights[flight.key]
        callers, flight.callers = list(flight.callers), {}
        self._joined -= len(callers) - 1
        for asking in callers:  # telling one may make another leave
            asking.flight = None
        if not isinstance(answer, InferplaneError):
            self._keep(flight, answer)
        is_own_fault = _is_own_fault(flight.first, answer)
        for asking in callers:
            is_other = asking is not flight.first
            if is_other and is_own_fault:
                self._again(flight.key, asking)
            else:
                asking.is_hit = is_other
                self._tell(asking, answer)

    def _keep(self, flight: _Flight, outputs: Outputs) -> None:
        began = time.perf_counter_ns()
        self._cache.put(flight.key[0], outputs, time.monotonic())
        spent = time.perf_counter_ns() - began
        self._statistics.cache_miss.add(flight.first.looked_ns + spent)

    def _again(self, key: Key, asking: Asking) -> None:
        """The first caller had no more time, but this one may have."""
        if asking.deliver is None:
            return
        try:
            self._compute(key, asking)
        except InferplaneError as error:
            self._tell(asking, error)

    def _tell_soon(self, asking: Asking, outputs: Outputs) -> None:
        asking.is_hit = True
        if not self._found:
            asyncio.get_running_loop().call_soon(self._tell_found)
        self._found.append((asking, outputs))

    def _tell_found(self) -> None:
        found, self._found = self._found, []
        for asking, outputs in found:
            self._tell(asking, outputs)
        self._delivered()

    def _tell(self, asking: Asking, answer: Answer) -> None:
        """Tell the caller, once; nothing if it has gone."""
        deliver, asking.deliver = asking.deliver, None
        if deliver is None:
            return
        if isinstance(answer, InferplaneError):
            deliver(answer)
            return
        if asking.is_hit:
            self._statistics.cache_hit.add(asking.looked_ns)
            if asking.request.facts is not None:
                asking.request.facts.cache_hit = True
            if asking.request.use is not None:
                asking.request.use.from_cache = True
        deliver({name: answer[name] for name in asking.request.outputs})


def _is_own_fault(first: Asking, answer: Answer) -> bool:
    """Whether an error comes from the first caller's deadline: with none, or a later one, there may be an answer."""
    return (
        isinstance(answer, DeadlineExceededError)
        and first.deadline is not None
        and first.deadline <= time.monotonic()
    )
