"""The callers: a process of its own, so that it can be killed.

With a number it makes calls from that one on, of every kind, so many at once, until it is killed. Without it makes the
calls that it is told on its standard input, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
from typing import Any

from benchmarks.kill_matrix.calls import Call, Caller, Kind

_PAUSE_SECONDS = 0.3
_KINDS = tuple(Kind)


def call_of(number: int) -> Call:
    """The call of a number among many."""
    return Call(number, _KINDS[number % len(_KINDS)], 3 + number // len(_KINDS) % 30)


class Notes:
    """What is said of calls, a line each, written at once."""

    def __init__(self, file: int) -> None:
        """Assign only."""
        self._file = file

    def __call__(self, **said: Any) -> None:
        """One line."""
        os.write(self._file, json.dumps(said).encode() + b"\n")


async def call_on(caller: Caller, first: int, at_once: int) -> None:
    """Numbers from this one on, once each, until killed."""
    left = itertools.count(first)

    async def one_after_the_other() -> None:
        for number in left:
            if not await caller.call(call_of(number)):
                await asyncio.sleep(_PAUSE_SECONDS)  # others are dead, too

    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))


async def call_as_told(caller: Caller) -> None:
    """A line for each call, until there are no more."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        said = json.loads(line)
        await caller.call(Call(said["n"], Kind(said["kind"]), said["tokens"]))


def main() -> None:
    """Read the command line and call."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "token", "log"):
        parser.add_argument(name)
    parser.add_argument("--first", type=int)
    parser.add_argument("--at-once", type=int, default=8)
    said = parser.parse_args()

    async def run() -> None:
        log = sys.stdout.fileno()
        if said.log != "-":
            log = os.open(said.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        caller = Caller(said.address, said.token, Notes(log))
        if said.first is None:
            await call_as_told(caller)
        else:
            await call_on(caller, said.first, said.at_once)

    asyncio.run(run())


if __name__ == "__main__":
    main()
