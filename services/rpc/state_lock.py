"""The lock on a service's files: one process of it at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.rpc.errors import FailedPreconditionError


@contextmanager
def held(path: Path, service: str) -> Iterator[None]:
    """Hold the lock file, which names the holder's process; the system releases it however the process ends.

    Args:
        path: the lock file, beside what it guards.
        service: which service's processes may not run twice, for the error.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise FailedPreconditionError(
                f"{path.parent} is in use by another {service} (process {holder}); stop that one, or set"
                " INFERPLANE_STATE_DIR to another folder",
                reason="STATE_IN_USE",
                metadata={"path": str(path), "pid": holder},
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
