"""Files that hold secrets: for this user alone, written whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from services.rpc.errors import FailedPreconditionError

_OTHERS = 0o077  # what anybody but the owner may do


def write_secret(path: Path, content: bytes) -> None:
    """Put `content` in place of the file, with mode 0600; durable when it returns."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    sync_folder(path.parent)


def read_secret(path: Path) -> bytes | None:
    """The file's content; None if there is none. FailedPreconditionError if others may read or change it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OTHERS:
                raise FailedPreconditionError(
                    f"{path} is open to others (mode {mode & 0o777:o}); make it 0600, and rotate what is"
                    " in it if anybody may have read it",
                    reason="SECRET_EXPOSED",
                    metadata={"path": str(path)},
                )
            return file.read()
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """Make what was renamed or removed in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
