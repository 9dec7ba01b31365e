"""What a child process writes, line by line."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LONGEST_LINE = 1024 * 1024  # bytes; a longer one is cut into several
_LAST_WORDS = 1.0  # seconds for what an ended process wrote to be read


class OutputPipe:
    """A pipe of our own.

    With asyncio's subprocess pipes, waiting for the process means waiting for all who inherited them.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        """`take` gets every line, with its newline."""
        self._take = take
        self._reading_end, self.writing_end = os.pipe()
        self._reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def unless_lost(self) -> Iterator[None]:
        """Close both ends if the child that was to write can't be started."""
        try:
            yield
        except OSError:
            os.close(self._reading_end)
            os.close(self.writing_end)
            raise

    async def begin(self) -> asyncio.ReadTransport:
        """Start reading; the writing end is the child's alone from now on."""
        os.close(self.writing_end)
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._reading_end, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), pipe
        )
        self._task = asyncio.create_task(self._read())
        return transport

    async def finish(self, transport: asyncio.ReadTransport) -> None:
        """The process has ended: read the rest. A descendant that holds the pipe open is not waited for."""
        if self._task is not None:
            _, pending = await asyncio.wait({self._task}, timeout=_LAST_WORDS)
            for task in pending:
                task.cancel()
        transport.close()

    async def _read(self) -> None:
        while True:
            try:
                line = await self._reader.readuntil()
            except asyncio.IncompleteReadError as error:
                line = error.partial
            except asyncio.LimitOverrunError as error:
                line = await self._reader.read(error.consumed)
            if not line:
                return
            self._take(line if line.endswith(b"\n") else line + b"\n")
