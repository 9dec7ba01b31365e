"""A model's chat template, rendered in a process of its own that is held to time and memory."""

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from services.rpc.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.frames import HEAD, frame

_log = structlog.get_logger(__name__)

_MODULE = "services.worker.llm.adapters.template_child"  # imports what this process doesn't need
SOURCE_BYTES = 256 * 1024
_START_SECONDS = 20.0  # an interpreter's own time, on a machine that is busy
_RENDER_SECONDS = 2.0
_READ_BYTES = 1 << 20
# Beside Jinja's own, what templates may take for granted.
_NAMES: Mapping[str, object] = {"tools": None, "documents": None, "add_generation_prompt": True}


class _LateError(Exception):
    """There was no answer in time, or no process to give one."""


class _Child:
    """The process; asked by one thread at a time."""

    def __init__(self) -> None:
        self.has_template = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )

    def ask(self, contents: Mapping[str, object], seconds: float) -> Mapping[str, Any]:
        """Its answer. Raises _LateError."""
        assert self._process.stdin is not None
        deadline = time.monotonic() + seconds
        left = memoryview(frame(contents))
        descriptor = self._process.stdin.fileno()
        os.set_blocking(descriptor, False)
        while left:
            self._wait(descriptor, select.POLLOUT, deadline)
            try:
                left = left[os.write(descriptor, left) :]
            except BrokenPipeError as error:
                raise _LateError from error
        (size,) = HEAD.unpack(self._read(HEAD.size, deadline))
        answer: Mapping[str, Any] = json.loads(self._read(size, deadline))
        return answer

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        read = bytearray()
        while len(read) < size:
            self._wait(descriptor, select.POLLIN, deadline)
            piece = os.read(descriptor, min(size - len(read), _READ_BYTES))
            if not piece:
                raise _LateError
            read += piece
        return bytes(read)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise _LateError

    def end(self) -> None:
        """At once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class JinjaTemplate:
    """Renders one conversation at a time; its process ends with it."""

    def __init__(
        self, source: str, tokens: Mapping[str, str], seconds: float = _RENDER_SECONDS
    ) -> None:
        """`tokens` are names that the template may use, like `bos_token`; `seconds` are for one conversation.

        The process starts; `check` waits for it. Raises LoadError if the template is too long.
        """
        if len(source.encode(errors="replace")) > SOURCE_BYTES:
            raise LoadError(f"the chat template is longer than {SOURCE_BYTES} bytes")
        self._source = source
        self._tokens = dict(tokens)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._start()

    def check(self) -> None:
        """Block until the process has parsed it. Raises LoadError if it can't."""
        with self._lock:
            self._parsed()

    def _start(self) -> _Child:
        child = self._child = _Child()
        self._end = weakref.finalize(self, child.end)
        return child

    def _drop(self) -> None:
        self._end()
        self._child = None

    def _parsed(self) -> _Child:
        """The process, with the template in it. Raises LoadError."""
        child = self._child or self._start()
        if child.has_template:
            return child
        try:
            answer = child.ask({"source": self._source}, _START_SECONDS)
        except _LateError as error:
            self._drop()
            raise LoadError("the chat template takes too long or too much room to parse") from error
        if "error" in answer:
            self._drop()
            raise LoadError(f"the chat template can't be parsed: {answer['error']}")
        child.has_template = True
        return child

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
    ) -> str:
        """The text that the assistant's next message continues."""
        names = {**_NAMES, **self._tokens, **(options or {}), "messages": list(messages)}
        if not self._lock.acquire(timeout=self._seconds):
            raise ResourceExhaustedError(
                "the model's chat template is busy with other conversations",
                reason="TEMPLATE_BUSY",
                retry_after=self._seconds,
            )
        try:
            answer = self._parsed().ask(names, self._seconds)
        except LoadError as error:  # it could be once, so the machine is to blame
            raise InternalError(str(error), reason="TEMPLATE_PROCESS") from error
        except RecursionError as error:  # of JSON, before anything was sent
            raise _refused("what it is given goes too deep") from error
        except _LateError as error:
            self._drop()
            _log.warning("chat template takes too long or too much room")
            raise _refused(
                f"it took longer than {self._seconds:g} s, or more memory than it may"
            ) from error
        finally:
            self._lock.release()
        if "error" in answer:
            raise _refused(str(answer["error"]))
        return str(answer["text"])


def _refused(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the model's chat template does not take these messages: {why}",
        reason="TEMPLATE_REFUSED",
        metadata={"why": why},
    )
