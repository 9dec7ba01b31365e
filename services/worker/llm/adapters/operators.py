"""The operators' library: where it is, and how it is built from native/.

A library lies under the digest of what it was built from, so that sources, flags and library always fit; what is there
is complete. Everything here is standard library alone: set-up runs this as a program of its own.
"""

import argparse
import concurrent.futures
import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NAME = "libinferplane_llm.so"
VARIANTS = ("avx512", "avx2", "portable")  # the best first

_SOURCES = Path(__file__).resolve().parent.parent / "native"
_BUILDS = Path(__file__).resolve().parents[4] / "build" / "native"

# Rounding must not depend on what the compiler finds to contract or reorder: a row's results are the same bits in
# every loop that computes them. So no -ffast-math, and fused multiply-adds only where the source says so.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
)
# GCC 12 takes the deliberately undefined values in its own AVX-512 header for mistakes.
_WARNINGS = ("-Wall", "-Wextra", "-Wno-maybe-uninitialized", "-Wno-unknown-pragmas")
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni")
_X86_FLAGS = {"kernels_avx2.cc": _AVX2, "kernels_avx512.cc": (*_AVX2, *_AVX512)}
_SECONDS = 300.0  # for one file; a loaded machine is slow, a compiler that hangs is a failure


class BuildError(Exception):
    """Why the library could not be built, in words for the person at the terminal."""


def library(prebuilt: Path | None = None) -> Path | None:
    """The library to load: the one given if it is there, else the one built from these sources; None: neither is."""
    for candidate in ([prebuilt] if prebuilt is not None else []) + [_built()]:
        if candidate.is_file():
            return candidate
    return None


def compiler() -> tuple[str, ...] | None:
    """The command of a C++ compiler: the system's, or that of the package `ziglang`; None if there is none."""
    for name in ("g++", "clang++", "c++"):
        if found := shutil.which(name):
            return (found,)
    return zig()


def zig() -> tuple[str, ...] | None:
    """The command of the compiler in the package `ziglang`, for any CPU of this family; None if it isn't installed."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return (sys.executable, "-m", "ziglang", "c++", "-mcpu=baseline")


def build(command: Sequence[str]) -> Path:
    """The library, built with this compiler unless it is there already; raises BuildError.

    May be called by several processes at once: one builds, the others wait for it.
    """
    _BUILDS.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(_BUILDS / ".lock"):
        target = _built()
        if target.is_file():
            return target
        with tempfile.TemporaryDirectory(dir=_BUILDS, prefix=".new-") as folder:
            fresh = _compiled(command, Path(folder))
            target.parent.mkdir(exist_ok=True)
            fresh.replace(target)
        for other in _BUILDS.glob("*/" + NAME):
            if other != target:  # of older sources; a process that has it loaded keeps it
                shutil.rmtree(other.parent, ignore_errors=True)
        return target


def variant(path: Path) -> str:
    """Which variant of the kernels a library uses in this process."""
    name = _loaded(path).inferplane_llm_variant
    name.restype = ctypes.c_char_p
    return str(name().decode())


def select(path: Path, name: str) -> bool:
    """Makes a library use another variant in this process; False, and no change, if this CPU can't run it."""
    chosen = _loaded(path).inferplane_llm_select
    chosen.restype = ctypes.c_bool
    return bool(chosen(name.encode()))


def _loaded(path: Path) -> ctypes.CDLL:
    # The same path is the same library, also when ONNX Runtime loaded it first.
    return ctypes.CDLL(str(path))


def _built() -> Path:
    return _BUILDS / _digest() / NAME


def _digest() -> str:
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}\0".encode())
    for path in _files():
        digest.update(f"{path.name}\0{' '.join(_flags(path))}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files() -> list[Path]:
    return sorted([*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cc")])


def _flags(source: Path) -> tuple[str, ...]:
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return (*_FLAGS, *(_X86_FLAGS.get(source.name, ()) if is_x86 else ()))


def _compiled(command: Sequence[str], folder: Path) -> Path:
    sources = [path for path in _files() if path.suffix == ".cc"]
    objects = [folder / f"{source.stem}.o" for source in sources]
    calls = [
        [*command, *_flags(source), *_WARNINGS, "-c", str(source), "-o", str(made)]
        for source, made in zip(sources, objects, strict=True)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(_run, calls):
            pass
    made = folder / NAME
    _run([*command, "-shared", "-s", "-pthread", *map(str, objects), "-o", str(made)])
    return made


def _run(call: Sequence[str]) -> None:
    try:
        result = subprocess.run(
            call, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{call[0]} could not be run: {error}") from error
    if result.returncode:
        raise BuildError(
            f"{' '.join(call)}\nended with {result.returncode}:\n{result.stderr.strip()}"
        )


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    import fcntl  # not on Windows, where this module must still say that there is no library

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str]) -> int:
    """Builds the library; the exit code says whether it is there."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--zig", action="store_true", help="with the compiler of the package ziglang"
    )
    options = parser.parse_args(arguments)
    command = zig() if options.zig else compiler()
    if command is None:
        print("there is no C++ compiler", file=sys.stderr)  # noqa: T201 - this is a program's word to its user
        return 1
    try:
        made = build(command)
    except BuildError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(made)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
