"""Tells on the terminal what a supervisor's children do.

It writes from a thread of its own: a terminal that is held up holds up nothing else.
"""

import queue
import sys
import threading
from typing import TextIO

from services.cli.domain import log_line

_BACKLOG = 1000  # lines; what comes while so many wait is dropped and counted
_COLOURS = {log_line.WARNING: "33", log_line.WARNING + 1: "31"}


class Narrator:
    """Implements `ports.narration.Narration` on a text stream (stderr by default)."""

    def __init__(self, *, verbose: bool, stream: TextIO | None = None) -> None:
        """With `verbose` all lines of the children are shown, else warnings and errors."""
        self._least = 0 if verbose else log_line.WARNING
        self._stream = stream or sys.stderr
        self._coloured = self._stream.isatty()
        self._waiting: queue.Queue[str | None] = queue.Queue(_BACKLOG)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="narrator", daemon=True)
        self._quiet = False

    def begin(self) -> None:
        """Start writing."""
        self._thread.start()

    def end(self, seconds: float = 2.0) -> None:
        """Write what waits, then stop; a terminal that is held up is given up on after `seconds`."""
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def hush(self) -> None:
        """Show no more lines of children: they are asked to end, and what they say then is in their logs."""
        self._quiet = True

    def say(self, text: str) -> None:
        """A line of the supervisor itself."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            self._dropped += 1

    def line(self, service: str, raw: str) -> None:
        if self._quiet:
            return
        parsed = log_line.parse(service, raw)
        if parsed.level >= self._least and parsed.text.strip():
            self.say(self._formatted(parsed))

    def started(self, service: str, pid: int) -> None:
        if self._least == 0:
            self.say(f"{service} runs as process {pid}")

    def died(self, service: str, how: str, restart_in: float, last_lines: list[str]) -> None:
        self.say(f"{service} {how}; it is started again in {restart_in:g} s")
        if last_lines:
            self.say(f"{service} dies again and again. The end of its log:")
            for raw in last_lines:
                self.say(f"  {log_line.parse(service, raw).text}")

    def stopped(self, service: str, how: str) -> None:
        if self._least == 0 or "killed" in how:
            self.say(f"{service} {how}")

    def _formatted(self, line: log_line.LogLine) -> str:
        text = f"{line.service:<10}{line.clock:<13}{line.level_name:<9}{line.text}"
        colour = _COLOURS.get(line.level)
        return f"\x1b[{colour}m{text}\x1b[0m" if colour and self._coloured else text

    def _write(self) -> None:
        while (text := self._waiting.get()) is not None:
            if self._dropped:
                text = f"({self._dropped} lines are only in the logs)\n{text}"
                self._dropped = 0
            try:
                self._stream.write(text + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # the terminal is gone; the logs are not
                continue
