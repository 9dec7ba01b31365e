"""The two loops, and what they note down."""

from __future__ import annotations

import os
import random
import select
import time
from array import array
from collections import Counter
from contextlib import suppress
from pathlib import Path

from benchmarks.generator.connection import Connection, Ended, dial
from benchmarks.generator.grpc_connection import GrpcConnection
from benchmarks.generator.http_connection import HttpConnection, prepared
from benchmarks.generator.order import Kept, Order, Result

_TICK = os.sysconf("SC_CLK_TCK")
_MOST_STREAMS = 8  # connections of a gRPC client that calls in parallel
_clock = time.perf_counter


def run(order: Order) -> Result:
    """Warm up, then do what the order says."""
    load = _Load(order)
    try:
        if order.warm_seconds:
            load.go(order.warm_seconds)
            load.drain()
        return load.timed()
    finally:
        load.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 if it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK
    return 0.0


def busy_seconds() -> float:
    """What all cores have worked since the machine started."""
    fields = [int(f) for f in Path("/proc/stat").read_bytes().split(b"\n", 1)[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / _TICK


class _Load:
    """Connections, their epoll, and the notes."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.errors: Counter[str] = Counter()
        self._epoll = select.epoll()
        self._connections = [self._connect() for _ in range(self._width())]
        self._by_file = {c.sock.fileno(): c for c in self._connections}
        for number in self._by_file:
            self._epoll.register(number, select.EPOLLIN)
        self._in_flight = 0
        self._sent = 0
        self._turn = 0
        self._forget()

    def _forget(self) -> None:
        """Start the notes anew."""
        self._seconds = array("d")  # from due time to answer
        self._lates = array("d")
        self._unsent = 0
        self._kept: list[Kept] = []
        self._keep_every = 1  # doubled whenever enough are kept
        self.errors.clear()

    def _width(self) -> int:
        order = self.order
        if order.connections:
            return order.connections
        return min(order.in_flight, _MOST_STREAMS) if order.protocol == "grpc" else order.in_flight

    def _connect(self) -> Connection:
        order = self.order
        sock = dial(order.address)
        if order.protocol == "grpc":
            return GrpcConnection(sock, order.path, order.bodies, order.lengths)
        requests = prepared(order.path, order.content_type, order.bodies)
        return HttpConnection(sock, requests, order.lengths)

    def close(self) -> None:
        for connection in self._connections:
            connection.sock.close()
        self._epoll.close()

    def timed(self) -> Result:
        """The load that counts."""
        self._forget()
        before = {pid: cpu_seconds(pid) for pid in self.order.pids}
        own, busy = time.process_time(), busy_seconds()
        seconds = self.go(self.order.seconds)
        own, busy = time.process_time() - own, busy_seconds() - busy
        spent = {str(pid): cpu_seconds(pid) - was for pid, was in before.items()}
        result = self.result(seconds, spent, own, busy)
        self.drain()
        return result

    def result(
        self, seconds: float, spent: dict[str, float], own: float, busy: float = 0.0
    ) -> Result:
        ordered = sorted(self._seconds)
        lates = sorted(self._lates)
        return Result(
            answers=len(ordered),
            seconds=seconds,
            errors=dict(self.errors),
            p50=_quantile(ordered, 0.5),
            p90=_quantile(ordered, 0.9),
            p99=_quantile(ordered, 0.99),
            longest=_quantile(ordered, 1.0),
            late_p99=_quantile(lates, 0.99),
            unfinished=self._in_flight + self._unsent,
            generator_cpu=own,
            server_cpu=spent,
            others_cpu=max(0.0, busy - own - sum(spent.values())),
            kept=tuple(self._kept),
        )

    def go(self, seconds: float) -> float:
        """Load for so long; the seconds that took."""
        begin = _clock()
        if self.order.rate:
            self._open(begin, seconds)
        else:
            self._closed(begin + seconds)
        return _clock() - begin

    def _closed(self, end: float) -> None:
        order = self.order
        share, extra = divmod(order.in_flight, len(self._connections))
        left = order.calls or 1 << 60
        for index, connection in enumerate(self._connections):
            count = min(share + (index < extra), left)
            left -= count
            self._begin(connection, count)
        while self._in_flight and (now := _clock()) < end:
            for connection in self._readable(min(order.timeout, end - now)):
                ended = self._take(connection)
                count = min(len(ended), left)
                left -= count
                self._begin(connection, count)

    def _begin(self, connection: Connection, count: int) -> None:
        now, number, bodies = _clock(), self._sent, len(self.order.bodies)
        for _ in range(count):
            connection.begin(number % bodies, now)
            number += 1
        self._sent = number
        self._in_flight += count
        connection.flush()

    def _readable(self, timeout: float) -> list[Connection]:
        begin = _clock()
        found = self._epoll.poll(timeout)
        if not found and timeout and _clock() - begin >= self.order.timeout:
            raise TimeoutError(f"no answer for {self.order.timeout} s")
        return [self._by_file[number] for number, _ in found]

    def _take(self, connection: Connection) -> list[Ended]:
        """Read answers and note them down."""
        ended = connection.receive()
        now = _clock()
        self._in_flight -= len(ended)
        for call in ended:
            if call.error:
                self.errors[call.error] += 1
                continue
            self._seconds.append(now - call.due)
            if not len(self._seconds) % self._keep_every and len(self._kept) < self.order.keep:
                self._kept.append(Kept(call.number, call.body))
                if len(self._kept) >= self.order.keep:
                    self._kept = self._kept[::2]
                    self._keep_every *= 2
        connection.flush()
        return ended

    def _open(self, begin: float, seconds: float) -> None:
        """Calls begin when they are due, whatever the answers do."""
        order, bodies = self.order, len(self.order.bodies)
        draw = random.Random(order.seed)
        due, end = begin, begin + seconds
        while due < end:
            self._answers_until(due)
            now = _clock()
            if now > end:  # behind: the rest is not sent any more
                self._unsent += 1
            elif (connection := self._free_one()) is None:
                for connection in self._readable(order.timeout):
                    self._take(connection)
                continue
            else:
                connection.begin(self._sent % bodies, due)
                connection.flush()
                self._sent += 1
                self._in_flight += 1
                self._lates.append(now - due)
            due += draw.expovariate(order.rate)

    def _free_one(self) -> Connection | None:
        """The next connection in turn that takes a call; None if as many are in flight as may be."""
        if self._in_flight >= self.order.in_flight:
            return None
        width = len(self._connections)
        for step in range(width):
            connection = self._connections[(self._turn + step) % width]
            if connection.free:
                self._turn += step + 1
                return connection
        return None

    def _answers_until(self, due: float) -> None:
        """Take answers until then, and at least once; select, since epoll's own timeout is in milliseconds."""
        while True:
            left = due - _clock()
            if left > 0 and not select.select([self._epoll], [], [], left)[0]:
                return
            for connection in self._readable(0):
                self._take(connection)
            if left <= 0:
                return

    def drain(self) -> None:
        """Wait for the calls that are still in flight."""
        while self._in_flight:
            for connection in self._readable(self.order.timeout):
                self._take(connection)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
