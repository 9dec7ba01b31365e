"""Broken conversations with the fast front, for as long as asked: no exception comes out of it and nothing stays in it.

Run: .venv/bin/python -m benchmarks.fuzz_front [--seconds 60] [--seed 0]

Each conversation is a good one, of frames of the protocol with calls of ModelInfer in them, whose bytes are changed,
cut, repeated, reordered or mixed with noise, in pieces of any size. The codec, the connection and ModelInfer with its
batcher are the real ones, in this process. A failure is shown with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import struct
import sys
import time
from dataclasses import dataclass

import structlog

from benchmarks.h2_load import framed
from services.worker.adapters import grpc_status
from services.worker.adapters.http2_codec import Ngh2Codec
from services.worker.domain.grpc_message import ByteBudget
from services.worker.drivers.front_connection import FrontConnection, FrontDesk
from services.worker.servicers.fast_inference import PATH
from tests.unit.worker.front_client import Peer, PipeTransport
from tests.unit.worker.servicers.fast_desk import Desk, desk, request

_LIMIT = 1 << 20
_TURNS = 50  # of the loop, for batches to be computed


@dataclass
class Table:
    """What conversations are led with."""

    desk: Desk
    front: FrontDesk
    dirty: list[FrontConnection]
    answered: int = 0


def table(at: Desk) -> Table:
    """A front with ModelInfer alone."""
    dirty: list[FrontConnection] = []
    front = FrontDesk(
        methods={PATH: at.inference.begin},
        make_codec=Ngh2Codec,
        status_of=grpc_status.trailers_of,
        max_message_bytes=_LIMIT,
        arriving=ByteBudget(2 * _LIMIT),
        max_unsent_bytes=4 * _LIMIT,
        users=frozenset(),
        admits=lambda _: False,
        deadlines_set=lambda: None,
        touched=dirty.append,
    )
    return Table(at, front, dirty)


def conversation(numbers: random.Random) -> bytes:
    """A client's side of a good one."""
    peer = Peer()
    out = [peer.session.data_to_send()]
    for _ in range(numbers.randint(1, 12)):
        message = request(numbers.randint(0, 3), k=numbers.randint(-1, 3)).SerializeToString()
        if numbers.random() < 0.2:
            message = changed(message, numbers)
        more = [(b"grpc-timeout", b"5S")] if numbers.random() < 0.5 else []
        stream = peer.request(PATH, framed(message), *more)
        if numbers.random() < 0.1:
            peer.session.reset_stream(stream)
        if numbers.random() < 0.5:
            out.append(peer.session.data_to_send())
    out.append(peer.session.data_to_send())
    return b"".join(out)


def changed(data: bytes, numbers: random.Random) -> bytes:
    """The same, broken in a few places."""
    made = bytearray(data)
    for _ in range(numbers.randint(0, 4)):
        if not made:
            break
        place = numbers.randrange(len(made))
        how = numbers.randrange(6)
        if how == 0:
            made[place] = numbers.randrange(256)
        elif how == 1:
            del made[place : place + numbers.randint(1, 40)]
        elif how == 2:
            made[place:place] = numbers.randbytes(numbers.randint(1, 40))
        elif how == 3:
            piece = made[place : place + numbers.randint(1, 200)]
            made[place:place] = piece
        elif how == 4:
            made[place:place] = _frame(numbers)
        else:
            made[place] ^= 1 << numbers.randrange(8)
    return bytes(made)


def _frame(numbers: random.Random) -> bytes:
    """Any frame, its length right or nearly."""
    payload = numbers.randbytes(numbers.choice([0, 1, 4, 5, 8, 30]))
    size = len(payload) + numbers.choice([0, 0, 0, 0, 1, -1])
    kind, flags = numbers.randrange(12), numbers.randrange(256)
    stream = numbers.choice([0, 1, 3, 5, 2, 0x7FFFFFFF])
    return struct.pack(">HBBBI", 0, max(size, 0), kind, flags, stream) + payload


async def lead(at: Table, seed: int) -> None:
    """One conversation from its beginning to the end of the connection."""
    numbers = random.Random(seed)
    data = changed(conversation(numbers), numbers)
    transport, connection = PipeTransport(), FrontConnection(at.front)
    connection.connection_made(transport)
    place = 0
    while place < len(data) and not transport.closed:
        size = numbers.choice([1, 9, 50, 1000, len(data)])
        connection.data_received(data[place : place + size])
        place += size
        if numbers.random() < 0.3:
            await _flush(at)
    for _ in range(_TURNS if numbers.random() < 0.8 else 0):
        await _flush(at)
        if not connection.calls:
            break
    if numbers.random() < 0.2:
        connection.expire(time.monotonic() + 1e9)
    at.answered += len(transport.take())
    connection.connection_lost(None)
    await _flush(at)
    assert not connection.calls, "calls"
    assert not at.front.connections, "connections"
    assert at.front.arriving.used == 0, "bytes of messages that arrive"


async def _flush(at: Table) -> None:
    await asyncio.sleep(0)
    dirty = at.dirty[:]
    at.dirty.clear()
    for connection in dirty:
        connection.flush()


async def fuzz(seconds: float, seed: int) -> int:
    """Conversations until the time is over; their number."""
    end, led = time.monotonic() + seconds, 0
    async with desk() as at:
        led_at = table(at)
        while time.monotonic() < end:
            try:
                await lead(led_at, seed + led)
            except BaseException:
                sys.stdout.write(f"seed {seed + led} fails\n")
                raise
            led += 1
        for _ in range(_TURNS):
            await _flush(led_at)
        at.check_idle()
    sys.stdout.write(f"{led:,} conversations; {led_at.answered:,} bytes of answers; nothing left\n")
    return 0 if led_at.answered else 1


def main() -> int:
    """Parse, run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # Each broken connection is a warning.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return asyncio.run(fuzz(given.seconds, given.seed))


if __name__ == "__main__":
    sys.exit(main())
