"""Libraries in C++: built on request, also with a compiler that comes as a package."""

import importlib.util
import subprocess

from tools.bootstrap import NO_COMPILER, Places, SetupError, compile_native, in_venv, say

ZIG = "ziglang==0.17.0"  # a C++ compiler for machines that have only Python; not locked, since nothing else needs it


def build(here: Places, *, with_zig: bool) -> None:
    """Builds the libraries that are not those of their sources; raises SetupError if that fails."""
    if with_zig and importlib.util.find_spec("ziglang") is None:
        say(f"Fetching {ZIG} (400 MB).")
        options = ["--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
        fetched = subprocess.run(in_venv(here, "pip", "install", *options, ZIG), check=False)
        if fetched.returncode:
            raise SetupError(f"pip could not install {ZIG}")
    problem = compile_native(here, *(["--zig"] if with_zig else []))
    if problem == NO_COMPILER:
        raise SetupError(
            "there is no C++ compiler in PATH (g++, clang++ or c++); install one (Debian and Ubuntu: apt install g++),"
            " or have one fetched (400 MB): ./inferplane operators --zig"
        )
    if problem:
        raise SetupError(f"the libraries in C++ could not be built: {problem}")
