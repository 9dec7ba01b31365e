"""Packets that come late or not at all, in the network namespace that this program runs in.

Run: nsenter --net=/proc/PID/ns/net python -I -S packets.py QUEUE DELAY_SECONDS LOSS (0 to 1)

A kernel without `netem` has no delay of its own, but hands packets to programs (NFQUEUE): a rule of iptables puts them
into a queue, and this program lets each go on after its time, or drops it. It is there once it has printed a line, and
ends by SIGTERM, when what waits goes on at once. Standard library alone: it runs without the environment.
"""

from __future__ import annotations

import heapq
import random
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator

_NETLINK_NETFILTER = 12
_QUEUE_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG = (_QUEUE_SUBSYSTEM | n for n in range(3))
_REQUEST, _ACK = 1, 4
_CONFIG_COMMAND, _CONFIG_PARAMETERS, _CONFIG_LENGTH = 1, 2, 3
_BIND, _COPY_META = 1, 1
_PACKET_HEADER, _VERDICT_HEADER = 1, 2
_DROP, _ACCEPT = 0, 1
_MOST_WAITING = 20_000
_BUFFER = 1 << 22


class Queue:
    """One queue of the kernel's."""

    def __init__(self, number: int) -> None:
        """Bind to it; OSError if the kernel has none, or somebody else has it."""
        self._number = number
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind((0, 0))
        bind = struct.pack("!BBH", _BIND, 0, socket.AF_INET)
        self._configure(_CONFIG_COMMAND, bind)
        self._configure(_CONFIG_PARAMETERS, struct.pack("!IB", 0, _COPY_META))
        self._configure(_CONFIG_LENGTH, struct.pack("!I", _MOST_WAITING))

    def fileno(self) -> int:
        return self._socket.fileno()

    def taken(self) -> Iterator[int]:
        """Ids of the packets that have come."""
        try:
            raw = self._socket.recv(_BUFFER)
        except OSError:  # more came than fits: those go on by themselves
            return
        at = 0
        while at + 16 <= len(raw):
            length, kind = struct.unpack_from("=IH", raw, at)
            if kind == _PACKET:
                (ident,) = struct.unpack_from("!I", raw, at + 24)  # its header comes first
                yield ident
            at += (length + 3) & ~3

    def decide(self, ident: int, verdict: int) -> None:
        """Let a packet go on, or drop it."""
        self._send(_VERDICT, _VERDICT_HEADER, struct.pack("!II", verdict, ident), _REQUEST)

    def _configure(self, attribute: int, value: bytes) -> None:
        self._send(_CONFIG, attribute, value, _REQUEST | _ACK)
        raw = self._socket.recv(_BUFFER)
        (code,) = struct.unpack_from("=i", raw, 16)
        if code:
            raise OSError(-code, "the kernel has no queue for packets, or it is in use")

    def _send(self, kind: int, attribute: int, value: bytes, flags: int) -> None:
        body = struct.pack("!BBH", socket.AF_UNSPEC, 0, self._number)
        body += struct.pack("=HH", 4 + len(value), attribute) + value
        body += bytes(-len(body) % 4)
        self._socket.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body)


def serve(queue: Queue, delay: float, loss: float) -> None:
    """Until SIGTERM."""
    chance, waiting = random.Random(1), list[tuple[float, int]]()
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while not ended:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
        if select.select([queue], [], [], min(wait, 0.1))[0]:
            now = time.monotonic()
            for ident in queue.taken():
                if chance.random() < loss:
                    queue.decide(ident, _DROP)
                else:
                    heapq.heappush(waiting, (now + delay, ident))
        while waiting and waiting[0][0] <= time.monotonic():
            queue.decide(heapq.heappop(waiting)[1], _ACCEPT)
    for _, ident in waiting:
        queue.decide(ident, _ACCEPT)


if __name__ == "__main__":
    serve(Queue(int(sys.argv[1])), float(sys.argv[2]), float(sys.argv[3]))
