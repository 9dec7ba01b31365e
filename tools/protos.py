"""Checks of protos/: buf's lint rules, and that nothing released is broken."""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.generation import google_api_include

GOOGLE_PACKAGES = ("google/api", "google/rpc", "google/type", "google/longrunning")
RELEASED = Path("protos/released.binpb")  # the image that changes are held against
MODULE = "protos"


def buf(*arguments: str) -> list[str]:
    """A command line of the environment's own buf."""
    return [str(Path(sys.executable).parent / "buf"), *arguments]


def lay_out_dependencies(root: Path) -> None:
    """Copies the protos that ours import to where buf.yaml names them, if another version lies there."""
    source, target = google_api_include(), root / "build" / "googleapis"
    wanted = [
        path.relative_to(source)
        for package in GOOGLE_PACKAGES
        for path in sorted((source / package).rglob("*.proto"))
    ]
    present = sorted(path.relative_to(target) for path in target.rglob("*.proto"))
    if sorted(wanted) == present and all(
        (source / path).read_bytes() == (target / path).read_bytes() for path in wanted
    ):
        return
    shutil.rmtree(target, ignore_errors=True)
    for path in wanted:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)


def lint_command() -> list[str]:
    """Holds protos/ to buf's rules."""
    return buf("lint", MODULE)


def breaking_command() -> list[str]:
    """Holds protos/ against what was released."""
    return buf("breaking", MODULE, "--against", str(RELEASED), "--exclude-imports")


def release(root: Path) -> None:
    """Makes today's protos the released ones: from now on a breaking change fails the checks."""
    lay_out_dependencies(root)
    subprocess.run(
        buf("build", MODULE, "--exclude-source-info", "-o", str(RELEASED)), cwd=root, check=True
    )
    print(f"{RELEASED} holds the protos as they are now; commit it.")
