"""The path of a state directory: what it must be for services to work in it, and what is told if it isn't."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.cli.domain.exit_code import StartError

_LONGEST_SOCKET_PATH = 107  # bytes; sockaddr_un.sun_path less its NUL (unix(7))
_LONGEST_SOCKET_NAME = len("/worker-00-0000000000.sock")
# Characters that mean themselves in an address `unix:/path`: gRPC reads it as a URI and decodes `%24`.
_PLAIN = re.compile(r"[A-Za-z0-9/._+=@~-]*")
_LONGEST_DATABASE_PATH = 504  # bytes; SQLite takes 512 with the suffix of its journal
_LONGEST = _LONGEST_DATABASE_PATH - len("/registry/registry.db")


def check(path: Path) -> None:
    """StartError unless services can name files below it."""
    try:
        encoded = str(path).encode()
    except UnicodeEncodeError as error:
        raise StartError(
            f"the state directory {str(path)!a} is not UTF-8; choose another with --state-dir",
            reason="STATE_PATH",
        ) from error
    length = max(len(encoded), len(os.fsencode(os.path.realpath(path))))
    if length > _LONGEST:
        raise StartError(
            f"the state directory {path} has a path of {length} bytes; allowed: at most {_LONGEST},"
            " which is what SQLite takes; choose another with --state-dir",
            reason="STATE_PATH",
        )


def holds_sockets(folder: Path) -> bool:
    """Whether sockets in this folder can be named in addresses."""
    path = os.fsencode(folder)
    is_short = len(path) + _LONGEST_SOCKET_NAME <= _LONGEST_SOCKET_PATH
    return is_short and _PLAIN.fullmatch(os.fsdecode(path)) is not None


def check_writable(paths: Iterable[Path]) -> None:
    """PermissionError, or what the system says else, for the first that is there and can't be written."""
    for path in paths:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@contextmanager
def told(state: Path) -> Iterator[None]:
    """Turn what the system says of files in the state directory into one line."""
    try:
        yield
    except OSError as error:
        where = error.filename or state
        raise StartError(
            f"{where}: {error.strerror}; the state directory {state} must be a folder that this"
            " user may write, with room on its disk; choose another with --state-dir",
            reason="STATE_UNUSABLE",
            metadata={"state_dir": str(state)},
        ) from error
