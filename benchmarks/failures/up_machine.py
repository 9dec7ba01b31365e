"""A machine that fails its mesh: small disks that fill up, and a clock that jumps."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.failures.environment import variable

_MIB = 1024 * 1024
_CHUNK = 64 * 1024
_FILLER = "filler"
_OFFSET = struct.Struct("=q")
_COMPILE = ("cc", "-shared", "-fPIC", "-O2")
_SOURCE = Path(__file__).with_name("clock.c")
SIZES = {  # of the folders in a state directory, MiB; the registry leaves 64 free for its database
    "registry": 96,
    "metering": 48,
    "usage": 32,
    "cache": 48,
}


@dataclass(frozen=True, slots=True)
class Disks:
    """Each folder of a state directory on a disk of its own."""

    state: Path

    @contextmanager
    def full(self, folder: str) -> Iterator[None]:
        """Within, there is not a byte left."""
        filler = self.state / folder / _FILLER
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                for size in (_CHUNK, 1):
                    with suppress(OSError):
                        while file.write(bytes(size)):
                            pass
            yield
        finally:
            filler.unlink(missing_ok=True)


@contextmanager
def small_disks(state: Path) -> Iterator[Disks]:
    """Disks in memory, mounted where the state directory's folders will be; only root may do that."""
    mounted: list[Path] = []
    try:
        for name, size in SIZES.items():
            place = state / name
            place.mkdir(parents=True, mode=0o700)
            options = f"size={size * _MIB},mode=0700"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
            mounted.append(place)
        yield Disks(state)
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", "--lazy", place], check=True)


def may_mount() -> bool:
    """Whether disks can be made here."""
    return os.geteuid() == 0


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock of all processes started within `own_clock`; their monotonic clock is the machine's."""

    file: Path

    def jump(self, seconds: int) -> None:
        """From now on it is so many seconds later than on the machine, or earlier."""
        with self.file.open("r+b", buffering=0) as file:
            file.write(_OFFSET.pack(seconds))


@contextmanager
def own_clock(folder: Path) -> Iterator[Clock]:
    """What is started within has a wall clock that can jump."""
    clock, library = Clock(folder / "clock"), folder / "clock.so"
    clock.file.write_bytes(_OFFSET.pack(0))
    subprocess.run([*_COMPILE, "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    with ExitStack() as stack:
        given = {"LD_PRELOAD": str(library), "FAILURES_CLOCK_FILE": str(clock.file)}
        for name, value in given.items():
            stack.enter_context(variable(name, value))
        yield clock


def can_jump() -> bool:
    """Whether clocks can be made to jump here: by a library in C, on Linux."""
    return sys.platform == "linux" and shutil.which(_COMPILE[0]) is not None


@dataclass(frozen=True, slots=True)
class Machine:
    """What can be made to fail; None: not here."""

    disks: Disks | None
    clock: Clock | None


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine of a mesh's own, as far as this one can play it: for a state directory `state` in this folder."""
    with ExitStack() as stack:
        yield Machine(
            stack.enter_context(small_disks(folder / "state")) if may_mount() else None,
            stack.enter_context(own_clock(folder)) if can_jump() else None,
        )
