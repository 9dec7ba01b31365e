"""Captured texts as workers leave them on this machine: gzipped lines of JSON in files that say when they end."""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from services.cli.adapters.terminal import Terminal

_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}-until-\d{8}\.jsonl\.gz")
_GZIP = 16 + zlib.MAX_WBITS
_SHOWN = 60  # characters of a text in a table

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which calls; None: all."""

    project: str | None = None
    endpoint: str | None = None
    since: datetime | None = None

    def takes(self, line: Line) -> bool:
        """Whether a captured call is one of them."""
        return (
            self.project in (None, line["project"])
            and self.endpoint in (None, line["endpoint"])
            and (self.since is None or datetime.fromisoformat(line["time"]) >= self.since)
        )


def read(folder: Path, wanted: Wanted) -> Iterator[Line]:
    """Captured calls, file by file, the oldest file first."""
    for path in _files(folder):
        yield from (line for line in _lines(path) if wanted.takes(line))


def purge(folder: Path, before: datetime | None) -> int:
    """Remove files whose newest line is older than `before`, or all of them; how many.

    Workers go on with new ones.
    """
    removed = 0
    for path in _files(folder):
        if before is None or path.stat().st_mtime < before.timestamp():
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def show(screen: Terminal, lines: Iterator[Line]) -> None:
    """A line for each call; whole texts as JSON only."""
    if screen.as_json:
        screen.json(list(lines))
        return
    rows = [
        [
            line["time"][:19].replace("T", " "),
            line["project"],
            line["endpoint"],
            _short(line["prompts"]),
            _short(line["answers"]),
            " ".join(f"{label}={value:.2f}" for label, value in line["scores"].items()),
        ]
        for line in lines
    ]
    if not rows:
        screen.say(
            "no captured calls; what is captured is a setting of workers: INFERPLANE_CAPTURE"
        )
        return
    screen.table(["TIME (UTC)", "PROJECT", "ENDPOINT", "PROMPT", "ANSWER", "SCORES"], rows)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def _lines(path: Path) -> Iterator[Line]:
    """Each is a gzip member; a file that is written to, or whose worker died, may end within one."""
    try:
        rest = path.read_bytes()
    except FileNotFoundError:  # its time is over
        return
    while rest:
        member = zlib.decompressobj(_GZIP)
        try:
            text = member.decompress(rest)
        except zlib.error:
            return
        if not member.eof:
            return
        yield orjson.loads(text)
        rest = member.unused_data


def _short(texts: list[str]) -> str:
    text = " | ".join(texts).replace("\n", " ")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
