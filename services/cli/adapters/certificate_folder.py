"""A folder with certificate, key and authorities, replaced all at once."""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from services.rpc.tls import CURRENT

_SET = "..set-"  # beginning of the names of folders that hold one set


def replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put these files there: `folder/NAME` leads by links to the newest set, which nobody but this user reads.

    Who reads sees one set or the other. Envoy hears of the link's change; the set before stays for who reads it now.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = folder / CURRENT
    before = link.readlink().name if link.is_symlink() else None
    fresh = folder / f"{_SET}{secrets.token_hex(6)}"
    fresh.mkdir(mode=0o700)
    for name, content in files.items():
        _write(fresh / name, content)
    _sync(fresh)
    # Envoy looks again when something is moved in the folder: the names must be links by then.
    for name in files:
        if not (folder / name).is_symlink():
            if before is None:
                _point(link, fresh.name)
            _point(folder / name, f"{CURRENT}/{name}")
    _point(link, fresh.name)
    _sync(folder)
    for old in folder.glob(f"{_SET}*"):
        if old.name not in (fresh.name, before):
            shutil.rmtree(old, ignore_errors=True)


def _point(link: Path, target: str) -> None:
    """Make or move a symbolic link at once."""
    partial = link.with_name(f"{link.name}.{secrets.token_hex(4)}.part")
    partial.symlink_to(target)
    partial.replace(link)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make names in the folder durable (fsync(2): the files' own fsync doesn't)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
