"""Files on this machine that become an artifact: listed, checked and hashed."""

import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from services.cli.domain.exit_code import UsageError
from services.cli.ports.report import Report
from services.rpc.errors import FailedPreconditionError

BLOCK = 1024 * 1024  # bytes read at once


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file of an artifact."""

    source: Path
    path: str  # in the artifact, with `/`
    size: int
    sha256: str  # lower-case hex


def collect(source: Path, report: Report, names: Collection[str] | None = None) -> list[LocalFile]:
    """The file, or all files of the folder (or those that are named), in the order of their paths in the artifact.

    A link could bring bytes from elsewhere into an artifact, so links and other special files are refused.
    """
    if names is None or not source.is_dir():
        walked = _walk(source)
    else:
        walked = [file for name in names for file in _walk(source / name)]
    found = sorted(walked, key=lambda pair: pair[1])
    if not found:
        raise FailedPreconditionError(f"{source}: holds no file", reason="ARTIFACT_EMPTY")
    total = sum(path.stat().st_size for path, _ in found)
    report.begin("hashing", total, 0)
    files = [_hashed(path, name, report) for path, name in found]
    report.finish()
    return files


def _walk(source: Path) -> list[tuple[Path, str]]:
    try:
        status = source.lstat()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}", reason="FILE_NOT_FOUND") from error
    if not stat.S_ISDIR(status.st_mode):
        _check(source, status)
        return [(source, source.name)]
    found = []
    for folder, folders, names in os.walk(source):
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                _check(path, status)
                found.append((path, path.relative_to(source).as_posix()))
    return found


def _check(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        found = f"is a symbolic link to {path.readlink()}"
    elif not stat.S_ISREG(status.st_mode):
        found = "is no regular file"
    elif status.st_nlink > 1:
        found = f"is a hard link ({status.st_nlink} names share its bytes)"
    else:
        return
    raise FailedPreconditionError(
        f"{path}: {found}; allowed: regular files with one name. Copy it instead.",
        reason="FILE_NOT_REGULAR",
        metadata={"path": str(path)},
    )


def _hashed(source: Path, path: str, report: Report) -> LocalFile:
    digest = hashlib.sha256()
    size = 0
    try:
        with source.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
                size += len(block)
                report.advance(len(block))
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}", reason="FILE_UNREADABLE") from error
    return LocalFile(source, path, size, digest.hexdigest())
