"""A second, independent count in each worker, and gates: Python imports this first where it is on PYTHONPATH.

What a batcher or an engine has accepted, and how many tokens are about to be handed to the edge, is appended to a file
as it happens. Nothing of the worker's own counting is asked.

Where KILL_MATRIX_GATE names a socket, a worker tells there which stage of a call it has come to, and goes on when it
is let: `enters`, `accepted`, `compute` (of a tensor), `step` (of a text, before it), `ended` (counted, not handed
over), `unsent` and `stored` (rows, before and after metering has them).
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

_PATH = os.environ.get("KILL_MATRIX_AUDIT", "")
_GATE = os.environ.get("KILL_MATRIX_GATE", "")


def _note(file: int, line: bytes) -> None:
    os.write(file, line)  # whole lines, since the file is opened for appending


def _come_to(stage: str) -> None:
    """Tell it, and go on when let; or when nobody is there to let anybody."""
    if not _GATE:
        return
    with socket.socket(socket.AF_UNIX) as gate:
        try:
            gate.connect(_GATE)
            gate.sendall(f"{stage} {os.getpid()}\n".encode())
            gate.recv(1)
        except OSError:
            return


def _install() -> None:
    from services.worker.drivers.batcher import Batcher
    from services.worker.drivers.suspects import Suspects
    from services.worker.llm.drivers.engine import Engine
    from services.worker.servicers.text_answer import TextAnswer

    file = os.open(_PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def counted(admit: Any) -> Any:
        def call(*arguments: Any) -> Any:
            _come_to("enters")  # before other threads can know of it
            ticket = admit(*arguments)
            _note(file, b"A\n")
            _come_to("accepted")
            return ticket

        return call

    def handed(deliver: Any) -> Any:
        def call(self: Any, update: Any, size: int) -> None:
            _note(file, b"T %d\n" % sum(len(piece.token_ids) for piece in update.pieces))
            deliver(self, update, size)

        return call

    Batcher.enter = counted(Batcher.enter)  # type: ignore[method-assign] # the audit
    Suspects.admit = counted(Suspects.admit)  # type: ignore[method-assign] # the audit
    Engine.submit = counted(Engine.submit)  # type: ignore[method-assign] # the audit
    TextAnswer.deliver = handed(TextAnswer.deliver)  # type: ignore[method-assign] # the audit


def _install_gates() -> None:
    from services.worker.adapters.onnx_session import OnnxSession
    from services.worker.adapters.usage_client import MeteringUsage
    from services.worker.adapters.usage_journal import FileJournal
    from services.worker.llm.drivers.stepper import Stepper

    def before(stage: str, act: Any) -> Any:
        def call(*arguments: Any) -> Any:
            _come_to(stage)
            return act(*arguments)

        return call

    def after(stage: str, act: Callable[..., None]) -> Any:
        def call(*arguments: Any) -> None:
            act(*arguments)
            _come_to(stage)

        return call

    def around(record: Any) -> Any:
        async def call(*arguments: Any) -> int:
            await asyncio.to_thread(_come_to, "unsent")
            number: int = await record(*arguments)
            await asyncio.to_thread(_come_to, "stored")
            return number

        return call

    OnnxSession.run = before("compute", OnnxSession.run)  # type: ignore[method-assign] # a gate
    Stepper._computed = before("step", Stepper._computed)  # type: ignore[method-assign]
    FileJournal.end_all = after("ended", FileJournal.end_all)  # type: ignore[method-assign] # a gate
    FileJournal.end_calls = after("ended", FileJournal.end_calls)  # type: ignore[method-assign] # a gate
    MeteringUsage.record = around(MeteringUsage.record)  # type: ignore[method-assign] # a gate


if _PATH and "services.worker" in sys.orig_argv:
    _install()
    if _GATE:
        _install_gates()
