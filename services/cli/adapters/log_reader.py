"""Reads the logs of a state directory: the last lines of several services by time, then what comes."""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from services.cli.adapters.state_directory import StateDirectory
from services.cli.domain import log_line
from services.rpc.errors import NotFoundError

_CHUNK = 64 * 1024
_LOOK_EVERY = 0.2  # seconds; a file tells nobody that it has grown


@dataclass(slots=True)
class _Followed:
    """How far one log has been read."""

    path: Path
    inode: int
    offset: int
    rest: bytes = field(default=b"")  # a line whose end is not yet there


class LogReader:
    """Prints the logs of some services, or of all."""

    def __init__(self, state: StateDirectory, services: list[str], *, raw: bool) -> None:
        """NotFoundError if a service has no log."""
        self._raw = raw
        self._folder = state.logs
        self._services = services
        self._followed: dict[str, _Followed] = {}
        found = self._paths()
        if not self._all():
            raise NotFoundError(f"no logs: {state.nothing_runs}", reason="LOG_NOT_FOUND")
        for service in services:
            if not any(_is_of(service, name) for name in found):
                there = ", ".join(sorted(self._all()))
                raise NotFoundError(
                    f"no log of {service!r} in {state.logs}; there are: {there}",
                    reason="LOG_NOT_FOUND",
                )

    def _all(self) -> dict[str, Path]:
        return {path.stem: path for path in self._folder.glob("*.log")}

    def _paths(self) -> dict[str, Path]:
        return {
            name: path
            for name, path in sorted(self._all().items())
            if not self._services or any(_is_of(wanted, name) for wanted in self._services)
        }

    def show(self, count: int) -> None:
        """Print the last `count` lines of all together, by time."""
        lines: list[tuple[str, int, str, str]] = []
        for service, path in self._paths().items():
            raws, end = _last_lines(path, count)
            self._followed[service] = _Followed(path, path.stat().st_ino, end)
            time_before = ""  # a line without a time belongs after the one before it
            for raw in raws:
                time_before = log_line.parse(service, raw).time or time_before
                lines.append((time_before, len(lines), service, raw))
        for _, _, service, raw in sorted(lines)[-count:] if count else []:
            self._print(service, raw)
        sys.stdout.flush()

    def follow(self) -> None:
        """Print what comes, until interrupted; also of services that are started later."""
        while True:
            for service, path in self._paths().items():
                self._read_more(service, path)
            sys.stdout.flush()
            time.sleep(_LOOK_EVERY)

    def _read_more(self, service: str, path: Path) -> None:
        status = path.stat()
        known = self._followed.get(service)
        if known is None or known.inode != status.st_ino or status.st_size < known.offset:
            known = self._followed[service] = _Followed(path, status.st_ino, 0)
        if status.st_size == known.offset:
            return
        with path.open("rb") as stream:
            stream.seek(known.offset)
            new = stream.read()
        known.offset += len(new)
        *whole, known.rest = (known.rest + new).split(b"\n")
        for line in whole:
            self._print(service, line.decode(errors="replace"))

    def _print(self, service: str, raw: str) -> None:
        if self._raw:
            sys.stdout.write(raw + "\n")
            return
        line = log_line.parse(service, raw)
        sys.stdout.write(f"{service:<12}{line.clock:<13}{line.level_name:<9}{line.text}\n")


def _is_of(wanted: str, service: str) -> bool:
    return service == wanted or service.startswith(wanted + "-")


def _last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """The last lines of a file, and where it ends; reads backwards, so a large log costs no more than a small one."""
    with path.open("rb") as stream:
        end = stream.seek(0, 2)
        start, blocks = end, b""
        while start > 0 and blocks.count(b"\n") <= count:
            size = min(_CHUNK, start)
            start -= size
            stream.seek(start)
            blocks = stream.read(size) + blocks
    complete = blocks.rpartition(b"\n")
    lines = complete[0].split(b"\n") if complete[1] else []
    shown = [line.decode(errors="replace") for line in lines[-count:]] if count else []
    return shown, end - len(complete[2])
