"""Lock files: the exact versions and hashes of what pyproject.toml names."""

import subprocess
import sys
from pathlib import Path

OLDEST_PYTHON = "3.11"


def compile_command(kind: str, *, upgrade: bool) -> list[str]:
    """Resolves for every platform and Python at once, keeping locked versions unless told to upgrade."""
    # The runtime lock is constrained by the development lock, so that dev is a superset of it.
    extra = ["--extra", "dev"] if kind == "dev" else ["--constraints", "lock/dev.txt"]
    return [
        *(str(Path(sys.executable).parent / "uv"), "pip", "compile", "pyproject.toml", *extra),
        *("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes", "--quiet"),
        *("--no-header", "--no-emit-index-url", "--no-emit-find-links"),
        *(["--upgrade"] if upgrade else []),
        *("--output-file", f"lock/{kind}.txt"),
    ]


def compile_locks(root: Path, *, upgrade: bool) -> None:
    """Writes lock/dev.txt and lock/runtime.txt anew."""
    for kind in ("dev", "runtime"):
        subprocess.run(compile_command(kind, upgrade=upgrade), cwd=root, check=True)
        print(f"lock/{kind}.txt is that of pyproject.toml; commit it.")
