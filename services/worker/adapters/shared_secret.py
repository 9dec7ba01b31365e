"""A secret in a file, made once, that all workers of a machine share."""

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

SECRET_BYTES = 32


def shared_secret(path: Path) -> bytes:
    """Made at first use, whole or not at all, and readable for its user alone. Raises OSError."""
    with contextlib.suppress(FileExistsError):  # who comes second takes the first one's
        if not path.exists():
            _make(path)
    return path.read_bytes()


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secret-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
        os.link(name, path)
    finally:
        Path(name).unlink()
