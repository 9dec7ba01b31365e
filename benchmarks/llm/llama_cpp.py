"""llama.cpp, built for this machine from the source that a Python package carries, and kept by version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.environments import InstallError

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
_BUILD_BACKEND = "scikit-build-core==1.1.2"  # pip asks it for the package's name
_TARGETS = ("llama-server", "llama-quantize")
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
_LONGEST_DOWNLOAD = 600.0  # seconds
_LONGEST_BUILD = 3600.0


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """In a folder of its own; made by `make`, which takes about ten minutes the first time."""

    folder: Path

    @property
    def server(self) -> Path:
        return self._home / "build" / "bin" / "llama-server"

    @property
    def quantize(self) -> Path:
        return self._home / "build" / "bin" / "llama-quantize"

    @property
    def _home(self) -> Path:
        return self.folder / "llama.cpp" / VERSION

    def make(self) -> None:
        """Download, configure, build; what is there already is left as it is."""
        if self.server.is_file() and self.quantize.is_file():
            return
        for program in ("cmake", "g++"):
            if shutil.which(program) is None:
                raise InstallError(f"no {program} here to build llama.cpp with")
        self._home.mkdir(parents=True, exist_ok=True)
        source, build = self._home / "source", self._home / "build"
        if not source.is_dir():
            self._download(source)
        _run(["cmake", "-S", str(source), "-B", str(build), *_OPTIONS], _LONGEST_DOWNLOAD)
        jobs = str(os.cpu_count() or 1)
        command = ["cmake", "--build", str(build), "-j", jobs, "--target", *_TARGETS]
        _run(command, _LONGEST_BUILD)

    def _download(self, source: Path) -> None:
        venv, got = self._home / "venv", self._home / "sdist"
        _run([sys.executable, "-m", "venv", str(venv)], _LONGEST_DOWNLOAD)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "--no-input", "-q"]
        # Without isolation pip need not build the build tools first, which takes it five minutes.
        _run([*pip, "install", _BUILD_BACKEND], _LONGEST_DOWNLOAD)
        named = f"{PACKAGE}=={VERSION}"
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", str(got)]
        _run([*pip, "download", *options, named], _LONGEST_DOWNLOAD)
        with tarfile.open(next(got.glob("*.tar.gz"))) as sdist:
            sdist.extractall(got, filter="data")
        next(got.glob("*/vendor/llama.cpp")).rename(source)
        shutil.rmtree(got)
        shutil.rmtree(venv)


def _run(command: list[str], limit: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{command[0]} took longer than {limit:.0f} s") from error
    if done.returncode:
        told = (done.stdout + done.stderr).strip().splitlines()
        raise InstallError(f"{' '.join(command[:3])}: {' '.join(told[-3:])}")
