"""The process that holds a lock of ours, as Linux tells of it."""

from contextlib import suppress
from pathlib import Path

_LOCKS = Path("/proc/locks")  # proc_locks(5)
_PROCESSES = Path("/proc")
_EXITING = 0x4  # PF_EXITING of Linux' include/linux/sched.h
_STATE, _FLAGS = 0, 6  # in proc_pid_stat(5), counted from behind the command


def is_ending(path: Path) -> bool | None:
    """Whether the process that holds the flock on a file has begun to end.

    It has before the kernel closes the first of its files, and so before anybody can hear of its end from a socket.
    None: it can't be told, as nobody holds it, or somebody whom this process can't see, or this is no Linux.
    """
    with suppress(OSError, ValueError, IndexError):
        holders = _holders(path.stat().st_ino)
        if len(holders) == 1:
            words = (_PROCESSES / holders.pop() / "stat").read_text().rpartition(")")[2].split()
            return words[_STATE] in {"Z", "X"} or bool(int(words[_FLAGS]) & _EXITING)
    return None


def _holders(inode: int) -> set[str]:
    """Pids; of those who wait for a lock the lines have an arrow, and another number of words."""
    lines = [line.split() for line in _LOCKS.read_text().splitlines()]
    return {
        pid
        for _, kind, _, _, pid, place, *_ in (words for words in lines if words[1] != "->")
        if kind == "FLOCK" and place.endswith(f":{inode}") and pid.isdecimal() and pid != "0"
    }
