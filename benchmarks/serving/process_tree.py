"""A started program with all its descendants, found by a mark in their environment."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_MARK = "INFERPLANE_BENCHMARK_TREE"
_PROC = Path("/proc")
_LOOK = 0.02  # seconds between looks at processes that are ending


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (10^6 bytes) of a tree."""

    rss: float
    pss: float  # shared pages counted once
    processes: int


@dataclass(slots=True)
class ProcessTree:
    """What one command started; also what detached itself from it, since the environment is inherited."""

    process: subprocess.Popen[bytes]
    mark: bytes
    log: Path
    started: float  # perf_counter

    @classmethod
    def start(
        cls, command: Sequence[str], environment: Mapping[str, str], folder: Path, name: str
    ) -> ProcessTree:
        """Start it in `folder`, its output going to `NAME.log` there."""
        mark, log = secrets.token_hex(8), folder / f"{name}.log"
        variables = {**environment, _MARK: mark}
        with log.open("wb") as out:
            started = time.perf_counter()
            process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=folder, env=variables
            )
        return cls(process, f"{_MARK}={mark}".encode(), log, started)

    def pids(self) -> list[int]:
        """All that live now."""
        found = []
        for entry in _PROC.iterdir():
            if not entry.name.isdecimal():
                continue
            with suppress(OSError):  # gone, or not ours
                if self.mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def names(self) -> dict[int, str]:
        """Each process by a short name."""
        return {pid: _name(pid) for pid in self.pids()}

    def exposed(self) -> list[str]:
        """Addresses beyond loopback on which any of them listens."""
        found = set()
        for pid in self.pids():
            with suppress(psutil.Error):
                for open_ in psutil.Process(pid).net_connections("inet"):
                    ip = open_.laddr.ip.removeprefix("::ffff:") if open_.laddr else ""
                    if open_.status == psutil.CONN_LISTEN and not _is_loopback(ip):
                        found.add(f"{ip}:{open_.laddr.port}")
        return sorted(found)

    def memory(self) -> Memory:
        """What all occupy now."""
        pids = self.pids()
        return Memory(
            sum(_kilobytes(pid, "Rss") for pid in pids) * 1024 / 1e6,
            sum(_kilobytes(pid, "Pss") for pid in pids) * 1024 / 1e6,
            len(pids),
        )

    @property
    def is_alive(self) -> bool:
        """Whether the first process still runs."""
        return self.process.poll() is None

    def told(self) -> str:
        """The end of what it logged."""
        return self.log.read_bytes()[-3000:].decode(errors="replace").strip()

    def stop(self, grace: float = 10.0) -> None:
        """SIGTERM to the first process, then SIGKILL to whatever is left."""
        if self.is_alive:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        while left := self.pids():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK)  # other processes' ends cannot be waited on
            self.process.poll()


def _is_loopback(ip: str) -> bool:
    return ipaddress.ip_address(ip).is_loopback


def _kilobytes(pid: int, field: str) -> int:
    with suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0


def _name(pid: int) -> str:
    with suppress(OSError):
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if "-m" in words:
            return words[words.index("-m") + 1]
        return Path(words[0]).name
    return "?"
