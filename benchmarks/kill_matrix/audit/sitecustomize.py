"""A second, independent count in each worker: Python imports this first where it is on PYTHONPATH.

What a batcher or an engine has accepted, and how many tokens are about to be handed to the edge, is appended to a file
as it happens. Nothing of the worker's own counting is asked.
"""

import os
import sys
from typing import Any

_PATH = os.environ.get("KILL_MATRIX_AUDIT", "")


def _note(file: int, line: bytes) -> None:
    os.write(file, line)  # whole lines, since the file is opened for appending


def _install() -> None:
    from services.worker.drivers.batcher import Batcher
    from services.worker.drivers.suspects import Suspects
    from services.worker.llm.drivers.engine import Engine
    from services.worker.servicers.text_answer import TextAnswer

    file = os.open(_PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def counted(admit: Any) -> Any:
        def call(*arguments: Any) -> Any:
            ticket = admit(*arguments)
            _note(file, b"A\n")
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


if _PATH and "services.worker" in sys.orig_argv:
    _install()
