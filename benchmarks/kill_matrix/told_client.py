"""A process that makes the calls that it is told, one at a time, and can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

from benchmarks.kill_matrix import verdict
from benchmarks.kill_matrix.calls import Call
from benchmarks.kill_matrix.verdict import Sent
from tests.e2e.mesh import ROOT, Mesh


class ToldClient:
    """Another process takes the place of one that was killed; what all of them said is kept."""

    def __init__(self, mesh: Mesh) -> None:
        """Assign only; `ready` starts it."""
        self._mesh = mesh
        self._sent: dict[int, Sent] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def ready(self) -> None:
        """It runs."""
        if self._process is None:
            where = (self._mesh.address, self._mesh.token, "-")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.kill_matrix.client", *where],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._reader.start()

    def make(self, call: Call) -> None:
        """A call."""
        assert self._process is not None
        assert self._process.stdin is not None
        said = {"n": call.number, "kind": call.kind, "tokens": call.tokens}
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """With SIGKILL; returns when all that it said has been read."""
        process, self._process = self._process, None
        if process is not None and self._reader is not None:
            process.kill()
            process.wait()
            self._reader.join()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    @property
    def sent(self) -> dict[int, Sent]:
        """All calls so far, by number."""
        with self._lock:
            return dict(self._sent)

    def has_ended(self, number: int) -> bool:
        """Whether the call has, for its caller."""
        return number in self.sent and self.sent[number].end != verdict.KILLED

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("}\n"):
                with self._lock:
                    verdict.note(self._sent, json.loads(line))
