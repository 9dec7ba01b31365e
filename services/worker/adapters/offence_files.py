"""The files of the scorer of offensive texts, made once by `services.worker.scorer_build`."""

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

GRAPH = "scorer.onnx"
WORDS = "words.json"
INPUT = "counts"
OUTPUT = "probabilities"
WORD = r"\b\w\w+\b"
OPSETS = {"": 21, "ai.onnx.ml": 3}

_PACKAGE = "alt-profanity-check"
_MODULE = "services.worker.scorer_build"
_SECONDS = 300.0
_TOLD = 2000  # bytes


class ScorerBuildError(Exception):
    """The files can't be made."""


def files(root: Path) -> Path:
    """The folder with both, made if it isn't there; blocks for seconds then. Raises ScorerBuildError, OSError."""
    folder = root / f"{_PACKAGE}-{version(_PACKAGE)}"
    if folder.exists():
        return folder
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=root, prefix="new-"))
    try:
        _build(fresh)
        fresh.rename(folder)
    except OSError:
        if not folder.exists():  # else others were quicker
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _build(folder: Path) -> None:
    command = [sys.executable, "-m", _MODULE, str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        told = error.stderr[-_TOLD:].decode(errors="replace")
        raise ScorerBuildError(f"the scorer's graph could not be made: {told}") from error
    except subprocess.TimeoutExpired as error:
        raise ScorerBuildError(f"the scorer's graph was not made in {_SECONDS:g} s") from error
