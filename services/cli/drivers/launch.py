"""Runs a command that can't outlive the process that started it: `python -I -S launch.py PARENT_PID COMMAND…`.

A program of its own, standard library only: between fork and exec of a process with threads no Python may run
(so no `preexec_fn`), and the kernel's promise is made by the child itself.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the promise was made
        sys.exit(1)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is meant
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
