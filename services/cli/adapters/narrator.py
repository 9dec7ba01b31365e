"""Tells on the terminal what a supervisor's children do.

It writes from a thread of its own: a terminal that is held up holds up nothing else.
"""

import queue
import sys
import threading
import time
from typing import TextIO

from services.cli.domain import log_line

_BACKLOG = 1000  # lines; what comes while so many wait is dropped and counted
_REPEAT_SECONDS = 10.0
_COLOURS = {log_line.WARNING: "33", log_line.ERROR: "31"}


class Narrator:
    """Implements `ports.narration.Narration` on a text stream (stderr by default)."""

    def __init__(self, *, verbose: bool, stream: TextIO | None = None) -> None:
        """With `verbose` all lines of the children are shown, else warnings and errors."""
        self._verbose = verbose
        self._settled = False
        self._told_at: dict[tuple[str, str], float] = {}  # by service and event
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

    def settle(self) -> None:
        """All answer: from now on warnings are worth showing; before, services only wait for each other."""
        self._settled = True

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
        if parsed.text.strip() and (self._verbose or self._matters(parsed)):
            self.say(self._formatted(parsed))

    def _matters(self, line: log_line.LogLine) -> bool:
        """Whether a line is shown without `verbose`; a warning that is given again and again is shown once."""
        if not line.event:
            return True
        if line.level < (log_line.WARNING if self._settled else log_line.ERROR):
            return False
        now, key = time.monotonic(), (line.service, line.event)
        told_at = self._told_at.get(key)
        if told_at is not None and now - told_at < _REPEAT_SECONDS:
            return False
        if len(self._told_at) >= _BACKLOG:
            self._told_at.clear()
        self._told_at[key] = now
        return True

    def started(self, service: str, pid: int) -> None:
        if self._verbose:
            self.say(f"{service} runs as process {pid}")

    def died(self, service: str, how: str, restart_in: float, last_lines: list[str]) -> None:
        if self._quiet:
            return
        self.say(f"{service} {how}; it is started again in {restart_in:g} s")
        if last_lines:
            self.say(f"{service} dies again and again. The end of its log:")
            for raw in last_lines:
                self.say(f"  {log_line.parse(service, raw).text}")

    def stopped(self, service: str, how: str) -> None:
        if self._verbose or how.endswith("signal 9"):
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
