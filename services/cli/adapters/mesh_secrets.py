"""Secrets in a state directory that belong to no service: the workers' fingerprint key, our own authority."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.rpc.errors import FailedPreconditionError
from services.rpc.secret_file import read_secret, write_secret

_FINGERPRINTS = "fingerprint.key"
_AUTHORITY = "ca"
_RECORD = "authority.json"


def save(state: Path, target: Path) -> None:
    """Copy them into a folder. An authority's key that lies elsewhere stays there."""
    for name in _names(state):
        content = read_secret(state / name)
        if content is not None:
            (target / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_secret(target / name, content)


def require_same(source: Path, state: Path) -> None:
    """FailedPreconditionError if a restore would write over any that is not the one that `save` took."""
    for name in _names(state):
        saved = source / name
        if not saved.exists() or saved.read_bytes() != (state / name).read_bytes():
            raise FailedPreconditionError(
                f"{state / name} is there and not the one of the backup;"
                " move it away if it is worth nothing any more",
                reason="NOT_EMPTY",
                metadata={"place": str(state / name)},
            )


def restore(source: Path, state: Path, before: str, *, authority: bool) -> None:
    """Put them in their places.

    Args:
        source: what `save` filled.
        state: the state directory.
        before: what it was called when they were saved.
        authority: whether ours is among them. In a cluster `state` is the workers', who must not see its key.
    """
    for name in _names(source):
        if not authority and name.startswith(f"{_AUTHORITY}/"):
            continue
        content = (source / name).read_bytes()
        if name == f"{_AUTHORITY}/{_RECORD}":
            content = json.dumps(_moved(json.loads(content), before, str(state)), indent=1).encode()
        (state / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(state / name, content)


def _names(folder: Path) -> Iterator[str]:
    if (folder / _FINGERPRINTS).exists():
        yield _FINGERPRINTS
    for path in sorted((folder / _AUTHORITY).glob("*")):
        if path.is_file() and (path.suffix == ".pem" or path.name == _RECORD):
            yield f"{_AUTHORITY}/{path.name}"


def _moved(value: Any, before: str, after: str) -> Any:
    """With paths below the old state directory below the new one."""
    if isinstance(value, dict):
        return {key: _moved(inner, before, after) for key, inner in value.items()}
    if isinstance(value, list):
        return [_moved(inner, before, after) for inner in value]
    if isinstance(value, str) and Path(value).is_relative_to(before):
        return str(Path(after) / Path(value).relative_to(before))
    return value
