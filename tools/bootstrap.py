"""The environment: locked packages in a virtual environment and code from protos/, made when out of date.

Runs before anything is installed, so it uses the standard library alone; every command passes through it, so it
imports little.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

SCHEME = 1  # raise it when an environment made by an older version of this module must be made anew
DEVELOPMENT_COMMANDS = frozenset(
    {"test", "lint", "typecheck", "codegen", "lock", "operators", "release-protos"}
)
NO_COMPILER = "no compiler"  # as services.native_library says it
RUNTIME_ONLY_COMMANDS = frozenset(
    {"codegen", "operators"}
)  # development commands that need no development package


class SetupError(Exception):
    """What keeps the environment from being made, in words for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the environment of one checkout lies."""

    root: Path
    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """Written last, removed first: an environment without it is unfinished."""
        return self.venv / "inferplane-stamp"

    @property
    def generated(self) -> Path:
        return self.root / "generated"

    @property
    def generated_stamp(self) -> Path:
        return self.generated / ".stamp"

    @property
    def native_stamp(self) -> Path:
        """What came of compiling, for which sources."""
        return self.root / "build" / "native" / ".stamp"

    @property
    def setup_lock(self) -> Path:
        return self.root / ".setup.lock"

    def lock_file(self, kind: str) -> Path:
        """The locked packages of a kind of environment: `runtime`, or `dev`, which includes them."""
        return self.root / "lock" / f"{kind}.txt"


def places() -> Places:
    """The places of the checkout that this file belongs to."""
    root = Path(__file__).resolve().parent.parent
    chosen = os.environ.get("INFERPLANE_VENV")
    return Places(
        root=root, venv=Path(chosen).expanduser().absolute() if chosen else root / ".venv"
    )


def say(text: str) -> None:
    """One line of progress."""
    print(f"inferplane: {text}", file=sys.stderr, flush=True)


def read_or_empty(path: Path) -> str:
    """The text of a file, empty if there is none."""
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return ""


# What is up to date


def venv_stamp(here: Places, kind: str) -> str:
    """What must be true of an environment: same scheme, same place, same Python behind it, same locked packages."""
    packages = hashlib.sha256(here.lock_file(kind).read_bytes()).hexdigest()
    return f"scheme {SCHEME}\nroot {here.root}\npython {os.path.realpath(here.python)}\npackages {kind} {packages}\n"


def venv_is_ready(here: Places, kind: str) -> bool:
    """Whether the environment has what this kind needs; a development environment serves both kinds."""
    found = read_or_empty(here.stamp)
    if not found or not here.python.exists():
        return False
    return found == venv_stamp(here, "dev") or (
        kind == "runtime" and found == venv_stamp(here, "runtime")
    )


def generation_stamp(here: Places) -> str:
    """What generated code depends on: the protos, the generators' versions, how they are called."""
    digest = hashlib.sha256()
    inputs = [
        *sorted((here.root / "protos").rglob("*.proto")),
        here.root / "tools" / "generation.py",
        here.lock_file("runtime"),
    ]
    for path in inputs:
        digest.update(f"{path.relative_to(here.root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest() + "\n"


def generated_is_ready(here: Places) -> bool:
    """Whether generated code is that of the protos."""
    return read_or_empty(here.generated_stamp) == generation_stamp(here)


def native_digest(here: Places) -> str:
    """What the libraries in C++ depend on."""
    digest = hashlib.sha256()
    patterns = ("native_library.py", "*/native/*", "*/*/native/*")
    inputs = [path for pattern in patterns for path in (here.root / "services").glob(pattern)]
    for path in sorted(inputs):
        digest.update(f"{path.relative_to(here.root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def native_is_ready(here: Places) -> bool:
    """Whether the libraries in C++ are those of their sources, or there is no use in compiling them again."""
    digest, *outcome = read_or_empty(here.native_stamp).splitlines() or [""]
    if digest != native_digest(here):
        return False
    if outcome == [NO_COMPILER]:
        import shutil

        return not any(map(shutil.which, ("g++", "clang++", "c++")))
    return all(Path(line).exists() for line in outcome if line != "failed")


# Making it


def ensure_python_can_make_environments() -> None:
    """Raises if the standard library lacks what a virtual environment is made with."""
    import importlib.util

    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SetupError(
            f"this Python ({sys.executable}, {version}) lacks the standard module {' and '.join(missing)}, "
            "needed to make a virtual environment.\n"
            f"Debian and Ubuntu: apt install python3-venv (or python{version}-venv). "
            "Fedora: dnf install python3-pip. Then run this again."
        )


def ensure_may_replace(folder: Path) -> None:
    """Raises if making an environment here would delete something that is none."""
    if folder.exists() and not folder.is_dir():
        raise SetupError(
            f"{folder} is in the way: it is no folder. Remove it or set INFERPLANE_VENV."
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise SetupError(
            f"{folder} holds something that is no virtual environment. Remove it or set INFERPLANE_VENV."
        )


@contextlib.contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Holds the set-up of this checkout; a second first use waits here until the first is done."""
    try:
        import fcntl
    except ImportError as error:
        raise SetupError(
            "inferplane runs on Linux and macOS; on Windows use it inside WSL."
        ) from error
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another inferplane that is setting up.")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def make_venv(here: Places) -> None:
    """An empty virtual environment, in place of an older one."""
    import subprocess

    ensure_may_replace(here.venv)
    command = [sys.executable, "-I", "-m", "venv", "--clear", str(here.venv)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        told = (result.stdout + result.stderr).strip()
        raise SetupError(f"could not make a virtual environment in {here.venv}:\n{told}")


def in_venv(here: Places, module: str, *options: str) -> list[str]:
    """A command line that runs a module under the environment's Python, apart from the caller's PYTHON* variables."""
    return [str(here.python), "-I", "-m", module, *options]


def pip_command(here: Places, kind: str) -> list[str]:
    """Installs exactly the locked packages; the user's own pip configuration (index, proxy, certificates) applies."""
    options = [
        "--require-hashes",
        "--no-deps",  # the lock is complete, so pip need not resolve
        "--no-user",  # a configured `user = true` would refuse a virtual environment
        "--no-compile",  # one parallel pass follows
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar=off",
    ]
    return in_venv(here, "pip", "install", *options, "-r", str(here.lock_file(kind)))


def show_progress(text: str) -> None:
    """Replaces the last line of a terminal; says nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def install(here: Places, kind: str) -> None:
    """Installs the locked packages of a kind into the environment."""
    import subprocess

    command = pip_command(here, kind)
    total = here.lock_file(kind).read_text().count("==")
    told: list[str] = []
    count = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None  # for the type checker: a pipe was asked for
        for line in pip.stdout:
            if line.startswith(("Collecting ", "Requirement already satisfied")):
                count += 1
            elif not line.startswith("  "):
                told.append(line)
            stage = "unpacking" if line.startswith("Installing") else "fetching"
            show_progress(f"inferplane:   {stage} {count} of at most {total} packages")
    show_progress("")
    if pip.returncode:
        raise SetupError(
            f"pip could not install the packages of lock/{kind}.txt (exit {pip.returncode}):\n"
            f"{''.join(told).strip()}\n"
            f"pip uses your own configuration; `{here.python} -m pip config list` shows it."
        )


def compile_packages(here: Places) -> None:
    """Compiles what was installed, so that no later start does; what can't be compiled is its importer's affair."""
    import subprocess

    show_progress("inferplane:   compiling the packages")
    command = in_venv(here, "compileall", "-q", "-j", "0", str(site_packages(here)))
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    show_progress("")


def site_packages(here: Places) -> Path:
    """Where the environment's packages lie."""
    return next((here.venv / "lib").glob("python3.*")) / "site-packages"


def set_up_venv(here: Places, kind: str) -> None:
    """Brings the environment to the locked packages: in place if it is sound, else from nothing."""
    import time

    begun = time.monotonic()
    found = read_or_empty(here.stamp)
    made_alike = (
        found.startswith(venv_stamp(here, kind).partition("packages")[0]) and here.python.exists()
    )
    if "packages dev" in found:
        kind = "dev"  # an environment stays complete once it is
    here.stamp.unlink(missing_ok=True)
    if made_alike:
        say(f"Setting up: bringing {here.venv} to the locked packages.")
    else:
        say(
            f"Setting up (first use): locked packages into {here.venv}; this takes a minute or two."
        )
        ensure_python_can_make_environments()
        make_venv(here)
    install(here, kind)
    compile_packages(here)
    (site_packages(here) / "inferplane.pth").write_text(f"{here.root}\n{here.generated}\n")
    here.stamp.write_text(venv_stamp(here, kind))
    say(f"Setting up: packages are installed ({time.monotonic() - begun:.0f} s).")


def generate(here: Places) -> None:
    """Makes the code of protos/ anew, under the environment's Python, which has the generators."""
    import subprocess

    say("Setting up: generating code from protos/.")
    result = subprocess.run(
        in_venv(here, "tools.generation"), capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SetupError(
            f"could not generate code from protos/:\n{(result.stdout + result.stderr).strip()}"
        )


def compile_native(here: Places, *options: str) -> str:
    """Builds the libraries in C++; gives what kept them from being built, empty if nothing did."""
    import subprocess

    say("Setting up: compiling the libraries in C++ (about half a minute).")
    command = in_venv(here, "services.native_library", *options)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    told = result.stderr.strip()
    outcome = result.stdout.strip()
    if result.returncode:
        outcome = told if told == NO_COMPILER else "failed"
    here.native_stamp.parent.mkdir(parents=True, exist_ok=True)
    here.native_stamp.write_text(f"{native_digest(here)}\n{outcome}\n")
    return told or "failed" if result.returncode else ""


def ensure_native(here: Places) -> None:
    """Builds the libraries in C++ if a compiler is there; all works without them, if slower."""
    problem = compile_native(here)
    if problem:
        why = (
            "There is no C++ compiler in PATH (g++, clang++ or c++)"
            if problem == NO_COMPILER
            else f"The libraries in C++ could not be built ({problem.splitlines()[-1]})"
        )
        say(
            f"{why}: all works, and language models are slower. "
            "`./inferplane operators` tries again; with --zig it fetches a compiler first (400 MB)."
        )


def ensure_environment(here: Places, kind: str, *, with_code: bool = True) -> None:
    """Makes what is missing or out of date; changes nothing if all is well."""
    code_is_ready = not with_code or (generated_is_ready(here) and native_is_ready(here))
    if venv_is_ready(here, kind) and code_is_ready:
        return
    with one_at_a_time(here.setup_lock):
        if not venv_is_ready(here, kind):
            set_up_venv(here, kind)
        if with_code and not generated_is_ready(here):
            generate(here)
        if with_code and not native_is_ready(here):
            ensure_native(here)


def main(arguments: Sequence[str]) -> NoReturn:
    """Makes the environment if need be and becomes the command, so that signals and exit codes are its own."""
    here = places()
    command = arguments[0] if arguments else ""
    is_development = command in DEVELOPMENT_COMMANDS
    kind = "dev" if is_development and command not in RUNTIME_ONLY_COMMANDS else "runtime"
    try:
        ensure_environment(
            here, kind, with_code=not is_development or command in {"test", "lint", "typecheck"}
        )
    except (SetupError, OSError) as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted; the next use sets up anew.")
        sys.exit(130)
    # A folder named like one of our packages in the current directory must not stand before ours.
    os.environ["PYTHONSAFEPATH"] = "1"
    module = "tools" if is_development else "services.cli"
    os.execv(here.python, [str(here.python), "-m", module, *arguments])
