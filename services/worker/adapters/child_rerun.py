"""Runs requests in a child process, another one after each crash, until all have an answer or are to blame."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import structlog

from services.rpc.errors import InferplaneError, InvalidArgumentError, UnavailableError
from services.worker.adapters import array_text, probe_order
from services.worker.adapters.child_probe import ProbeBounds
from services.worker.domain.assignment import VersionSpec
from services.worker.ports.flights import MODEL_CRASHED, Rerun, Told

_log = structlog.get_logger(__name__)

_MODULE = "services.worker.tensor_rerun"


class ChildReruns:
    """Reruns in processes of their own."""

    def __init__(self, bounds: ProbeBounds) -> None:
        """Assign only; `bounds` of each child."""
        self._bounds = bounds

    async def compute(
        self, spec: VersionSpec, folder: Path, requests: Sequence[Rerun], told: Told
    ) -> None:
        """One after the other; `told` is called once for each. One that crashes is InvalidArgumentError."""
        done = 0
        while done < len(requests):
            lines, code = await self._run(spec, folder, requests[done:])
            ended = done
            for answer in _answers(lines):
                told(ended, answer)
                ended += 1
            if ended < len(requests):
                told(ended, _blame(lines, code))
                ended += 1
            done = ended

    async def _run(
        self, spec: VersionSpec, folder: Path, requests: Sequence[Rerun]
    ) -> tuple[list[dict[str, Any]], int | None]:
        """The lines that a child wrote, and its exit status; None: its time was over."""
        text = await asyncio.to_thread(self._order, spec, folder, requests)
        child = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        is_late = False
        try:
            out, _ = await asyncio.to_thread(child.communicate, text, self._bounds.seconds)
        except subprocess.TimeoutExpired:
            is_late = True
            child.kill()
            out, _ = await asyncio.to_thread(child.communicate)
        finally:  # also when this is cancelled: the thread ends with the child
            if child.returncode is None:
                child.kill()
        return [
            orjson.loads(line) for line in out.split(b"\n")[:-1]
        ], None if is_late else child.returncode

    def _order(self, spec: VersionSpec, folder: Path, requests: Sequence[Rerun]) -> bytes:
        order = self._bounds.order(spec, folder)
        asked = [
            {"feeds": array_text.written(one.feeds), "outputs": list(one.outputs)}
            for one in requests
        ]
        return orjson.dumps({"order": probe_order.to_json(order).decode(), "requests": asked})


def _answers(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | InferplaneError]:
    """In the order of the requests."""
    found: list[Mapping[str, Any] | InferplaneError] = []
    for line in lines:
        if "outputs" in line:
            found.append(array_text.read(line["outputs"]))
        elif "refused" in line:
            found.append(InvalidArgumentError(line["refused"], reason=line["reason"]))
    return found


def _blame(lines: Sequence[Mapping[str, Any]], code: int | None) -> InferplaneError:
    """What the first request without an answer is told: not to have crashed if many before it took all the time."""
    if code is None or not lines or "begun" not in lines[-1]:
        return UnavailableError("this request could not be tried again", reason="RERUN_FAILED")
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    _log.warning("a request crashes its model", how=how)
    return InvalidArgumentError(
        f"the model crashes on these inputs ({how})", reason=MODEL_CRASHED, metadata={"how": how}
    )
