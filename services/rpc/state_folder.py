"""The folder of a service's files, made for its user alone."""

import errno
import os
from pathlib import Path

from services.rpc.errors import FailedPreconditionError


def prepare(folder: Path, said_by: str = "INFERPLANE_STATE_DIR") -> None:
    """Make the folder if it is not there; FailedPreconditionError if it can't be written.

    Args:
        folder: where the files are to lie.
        said_by: the setting that leads there, for the error.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise FailedPreconditionError(
            f"{error.filename}: {error.strerror}; {said_by} must lead to a folder that this user may write"
        ) from error
