"""Libraries in C++: where they are, and how they are built.

A library lies under the digest of what it was built from, so that sources, flags and library always fit; what is there
is complete. Everything here is standard library alone: set-up runs this as a program of its own.
"""

import argparse
import concurrent.futures
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_SERVICES = Path(__file__).resolve().parent
BUILDS = _SERVICES.parent / "build" / "native"

# Rounding must not depend on what the compiler finds to contract or reorder: a row's results are the same bits in
# every loop that computes them. So no -ffast-math, and fused multiply-adds only where the source says so.
_FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-pthread"),
    *("-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno"),
)
# GCC 12 takes the deliberately undefined values in its own AVX-512 header for mistakes.
_WARNINGS = ("-Wall", "-Wextra", "-Wno-maybe-uninitialized", "-Wno-unknown-pragmas")
_SECONDS = 900.0  # for one file; zig compiles its own library first, and a loaded machine is slow


class BuildError(Exception):
    """Why a library could not be built, in words for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """A shared library of the C++ files in one folder. May be built by several processes at once: one does."""

    name: str
    sources: Path
    # By file, where CPUs have them.
    x86_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def built(self) -> Path:
        """Where the library of these sources is, or would be."""
        return BUILDS / self.digest() / self.name

    def find(self, prebuilt: Path | None = None) -> Path | None:
        """The library to load: the one given if it is there, else the built one; None: neither is."""
        for candidate in ([prebuilt] if prebuilt is not None else []) + [self.built()]:
            if candidate.is_file():
                return candidate
        return None

    def build(self, command: Sequence[str]) -> Path:
        """The library, built with this compiler unless it is there already; raises BuildError."""
        BUILDS.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(BUILDS / ".lock"):
            target = self.built()
            if target.is_file():
                return target
            with tempfile.TemporaryDirectory(dir=BUILDS, prefix=".new-") as folder:
                fresh = self._compiled(command, Path(folder))
                target.parent.mkdir(exist_ok=True)
                fresh.replace(target)
            for other in BUILDS.glob(f"*/{self.name}"):
                if other != target:  # of older sources; a process that has it loaded keeps it
                    shutil.rmtree(other.parent, ignore_errors=True)
            return target

    def digest(self) -> str:
        """Of all that the library depends on, but for the compiler."""
        digest = hashlib.sha256(f"{self.name} {platform.system()} {platform.machine()}\0".encode())
        for path in sorted([*self.sources.glob("*.h"), *self.sources.glob("*.cc")]):
            digest.update(f"{path.name}\0{' '.join(self._flags(path))}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def _flags(self, source: Path) -> tuple[str, ...]:
        is_x86 = platform.machine().lower() in ("x86_64", "amd64")
        return (*_FLAGS, *(self.x86_flags.get(source.name, ()) if is_x86 else ()))

    def _compiled(self, command: Sequence[str], folder: Path) -> Path:
        sources = sorted(self.sources.glob("*.cc"))
        objects = [folder / f"{source.stem}.o" for source in sources]
        calls = [
            [*command, *self._flags(source), *_WARNINGS, "-c", str(source), "-o", str(made)]
            for source, made in zip(sources, objects, strict=True)
        ]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(_run, calls):
                pass
        made = folder / self.name
        _run([*command, "-shared", "-s", "-pthread", *map(str, objects), "-o", str(made)])
        return made


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni")

# The operators of the LLM engine, for ONNX Runtime.
OPERATORS = NativeLibrary(
    "libinferplane_llm.so",
    _SERVICES / "worker" / "llm" / "native",
    {"kernels_avx2.cc": _AVX2, "kernels_avx512.cc": (*_AVX2, *_AVX512)},
)
# Envoy's filter that learns a request's endpoint from its first message.
EDGE = NativeLibrary("libinferplane_edge.so", _SERVICES / "router" / "native")


def compiler() -> tuple[str, ...] | None:
    """The command of a C++ compiler: the system's, or that of the package `ziglang`; None if there is none."""
    for name in ("g++", "clang++", "c++"):
        if found := shutil.which(name):
            return (found,)
    return zig()


def zig() -> tuple[str, ...] | None:
    """The command of the compiler in the package `ziglang`; None if it isn't installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    # It would compile for the CPU at hand, but libraries choose their instructions when they are loaded.
    return (sys.executable, "-m", "ziglang", "c++", "-mcpu=baseline")


def _run(call: Sequence[str]) -> None:
    try:
        result = subprocess.run(
            call, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{call[0]} could not be run: {error}") from error
    if result.returncode:
        told = f"ended with {result.returncode}:\n{result.stderr.strip()}"
        raise BuildError(f"{' '.join(call)}\n{told}")


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    import fcntl  # not on Windows, where this module must still say that there is no library

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str]) -> int:
    """Builds all libraries; the exit code says whether they are there."""
    parser = argparse.ArgumentParser(prog="native_library", description=main.__doc__)
    parser.add_argument("--zig", action="store_true", help="use the compiler of ziglang")
    command = zig() if parser.parse_args(arguments).zig else compiler()
    if command is None:
        sys.stderr.write("no compiler\n")
        return 1
    for library in (OPERATORS, EDGE):
        try:
            sys.stdout.write(f"{library.build(command)}\n")
        except BuildError as error:
            sys.stderr.write(f"{library.name}: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
