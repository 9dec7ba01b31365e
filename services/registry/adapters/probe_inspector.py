"""The model inspector: asks a probe process, and bounds its time and memory."""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping

import structlog
from pydantic import TypeAdapter

from services.registry.domain.artifact import model_path
from services.registry.domain.model import Format, Signature
from services.registry.ports.model_inspector import StoredFile
from services.rpc.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
)

_log = structlog.get_logger(__name__)

_ONNX_PROBE = "services.registry.adapters.onnx_probe"
_LANGUAGE_PROBE = "services.registry.adapters.language_probe"
_BASE_MEMORY = 1024**3
_MEMORY_PER_BYTE = 4  # the file, its parsed form, and slack
_LARGEST_HEADER = 256 * 1024**2  # of a language model; more of the file is not read
_PARSER_DIED = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
_SIGNATURE = TypeAdapter(Signature)


def model_invalid(model: str, why: str) -> InvalidArgumentError:
    """The artifact is no model that can be served."""
    return InvalidArgumentError(
        f"files: {model!a} is refused: {why}",
        reason="MODEL_INVALID",
        metadata={"file": model, "problem": why},
    )


def _total(files: Mapping[str, StoredFile]) -> int:
    return sum(file.size_bytes for file in files.values())


class ProbeInspector:
    """A ModelInspector; a few inspections at a time, each in its own process."""

    def __init__(self, *, seconds: float, at_once: int = 2) -> None:
        """Assign only.

        Args:
            seconds: how long one inspection may take.
            at_once: how many run at a time; more wait.
        """
        self._seconds = seconds
        self._slots = asyncio.Semaphore(at_once)

    async def inspect(self, kind: Format, files: Mapping[str, StoredFile]) -> Signature:
        model = model_path(files, kind)
        probe, read = _ONNX_PROBE, files[model].size_bytes
        if kind.is_language:
            probe, read = _LANGUAGE_PROBE, min(_total(files), _LARGEST_HEADER)
        question = {
            "model": model,
            "kind": kind.value,
            "locations": {path: str(file.location) for path, file in files.items()},
            "sizes": {path: file.size_bytes for path, file in files.items()},
            "cpu_seconds": int(self._seconds) + 1,
            "memory_bytes": _BASE_MEMORY + _MEMORY_PER_BYTE * read,
        }
        async with self._slots:
            answer = await self._ask(probe, model, json.dumps(question).encode())
        if "error" in answer:
            raise model_invalid(model, str(answer["error"]))
        return _SIGNATURE.validate_python(answer)

    async def _ask(self, probe: str, model: str, question: bytes) -> dict[str, object]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            probe,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is for the registry to handle
        )
        try:
            async with asyncio.timeout(self._seconds):
                output, errors = await process.communicate(question)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"{model!a} could not be read within {self._seconds:g} s; the upload stays, finish it again",
                reason="INSPECTION_TIMEOUT",
                metadata={"file": model, "seconds": f"{self._seconds:g}"},
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return self._answer(model, process.returncode, output, errors)

    @staticmethod
    def _answer(model: str, code: int | None, output: bytes, errors: bytes) -> dict[str, object]:
        if code == 0:
            answer: dict[str, object] = json.loads(output)
            return answer
        _log.error("probe failed", code=code, stderr=errors.decode(errors="replace")[-4000:])
        if code is not None and -code in _PARSER_DIED:
            raise model_invalid(model, f"its parser crashed ({signal.Signals(-code).name})")
        raise InternalError(f"{model!a} could not be inspected; the server's log has the reason")
