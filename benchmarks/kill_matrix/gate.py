"""The gate: where workers tell which stage of a call they have come to, and wait until they are let."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_ENTERS = "enters"
_SECONDS = 10.0  # for a worker to say where it is; it does so at once


class Gate:
    """Holds the worker that is about to accept the next call, at one stage of it; all else passes."""

    def __init__(self, path: Path) -> None:
        """Assign only."""
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._lock = threading.Lock()
        self._stage = ""
        self._passing = 0  # times that it is passed first
        self._held: list[socket.socket] = []
        self.worker = 0  # pid of the one that had the call last

    def __enter__(self) -> Self:
        """Workers find it from now on."""
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.open()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def arm(self, stage: str, passing: int = 0) -> None:
        """Whoever accepts the next call is to wait at this stage, once it has passed it so many times."""
        with self._lock:
            self._stage, self._passing, self.worker = stage, passing, 0

    def open(self) -> None:
        """Nobody waits any longer."""
        with self._lock:
            self._stage = ""
        self.let()

    def let(self) -> None:
        """Who waits now goes on."""
        with self._lock:
            held, self._held = self._held, []
        for one in held:
            _let(one)

    @property
    def holds(self) -> bool:
        """Whether the worker has come to the stage, and waits."""
        with self._lock:
            return bool(self._held)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            connection.settimeout(_SECONDS)
            try:
                stage, pid = connection.makefile().readline().split()
            except (OSError, ValueError):  # it was killed as it spoke
                connection.close()
            else:
                self._come(connection, stage, int(pid))

    def _come(self, connection: socket.socket, stage: str, pid: int) -> None:
        with self._lock:
            if self._waits(stage, pid):
                self._held.append(connection)
                return
        _let(connection)

    def _waits(self, stage: str, pid: int) -> bool:
        if not self._stage:
            return False
        if stage == _ENTERS and not self._held:  # or has it now: the edge tries again elsewhere
            self.worker = pid
        if stage != self._stage or pid != self.worker:
            return False
        self._passing -= 1
        return self._passing < 0


def _let(connection: socket.socket) -> None:
    with connection, suppress(OSError):  # killed while it waited
        connection.sendall(b"g")
