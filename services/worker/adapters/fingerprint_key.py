"""The secret of fingerprints: of a setting, or of a file that all workers of a machine share."""

import contextlib
import os
import secrets
import tempfile
from hashlib import blake2b
from pathlib import Path

_BYTES = 32


def secret_of(setting: str, state_dir: Path) -> bytes:
    """32 bytes; the file is made at first use, and readable for its user alone. Raises OSError."""
    if setting:
        return blake2b(setting.encode(), digest_size=_BYTES).digest()
    path = state_dir / "fingerprint.key"
    with contextlib.suppress(FileExistsError):
        if not path.exists():
            _make(path)
    return path.read_bytes()


def _make(path: Path) -> None:
    """Whole or not at all; who comes second takes the first one's."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".fingerprint-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        os.link(name, path)
    finally:
        Path(name).unlink()
