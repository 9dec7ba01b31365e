"""A virtual environment for each peer, made from its pinned requirements and kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_REQUIREMENTS = Path(__file__).parent / "requirements"
_LONGEST_INSTALL = 900.0  # seconds
_STAMP = "benchmark-stamp"


class InstallError(Exception):
    """A peer cannot be installed; the text says why."""


@dataclass(frozen=True, slots=True)
class Environments:
    """Below one folder, by peer."""

    folder: Path
    requirements: Path = _REQUIREMENTS  # a file for each peer

    def python(self, peer: str) -> Path:
        """The peer's Python, its packages installed; makes what is missing."""
        venv = self.folder / "venvs" / peer
        pins = self.requirements / f"{peer}.txt"
        stamp = _stamp(pins)
        if _read(venv / _STAMP) != stamp:
            _make(venv, pins)
            (venv / _STAMP).write_text(stamp)
        return venv / "bin" / "python"


def version(peer: str, package: str, requirements: Path = _REQUIREMENTS) -> str:
    """The pin of a package in a peer's requirements."""
    for line in (requirements / f"{peer}.txt").read_text().splitlines():
        name, _, pin = line.partition("==")
        if name.strip().lower() == package.lower():
            return pin.strip()
    return "?"


def _stamp(pins: Path) -> str:
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    return f"{sys.version} {digest}\n"


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _make(venv: Path, requirements: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    venv.parent.mkdir(parents=True, exist_ok=True)
    python = venv / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(venv)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]
    _run([*pip, "--disable-pip-version-check", "-r", str(requirements)])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_INSTALL, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"installing took longer than {error.timeout:.0f} s") from error
    if done.returncode:
        told = (done.stdout + done.stderr).strip().splitlines()
        raise InstallError(f"cannot be installed: {' '.join(told[-3:])}")
