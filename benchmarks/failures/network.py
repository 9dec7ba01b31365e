"""A network that delays and loses what a process sends, or all of it; only root may do that to one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PROGRAM = Path(__file__).with_name("packets.py")
_QUEUE = 7
_RULE = ("OUTPUT", "-p", "tcp", "-j", "NFQUEUE", "--queue-num", str(_QUEUE), "--queue-bypass")


@contextmanager
def bad_network(pid: int, *, delay: float, loss: float) -> Iterator[None]:
    """Within, each packet of TCP that leaves the network namespace of a process takes longer, and some never arrive.

    Args:
        pid: of a process in it, such as a container's first.
        delay: seconds that each packet waits.
        loss: of all packets; 0.02 is two in a hundred.
    """
    inside = ("nsenter", f"--net=/proc/{pid}/ns/net")
    program = (sys.executable, "-I", "-S", str(_PROGRAM), str(_QUEUE), str(delay), str(loss))
    with subprocess.Popen([*inside, *program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            if running.stdout.readline() != "ready\n":
                raise AssertionError("packets can't be held up here")
            subprocess.run([*inside, "iptables", "-w", "-I", *_RULE], check=True)
            try:
                yield
            finally:
                subprocess.run([*inside, "iptables", "-w", "-D", *_RULE], check=True)
        finally:
            running.terminate()


@contextmanager
def no_network(pid: int) -> Iterator[None]:
    """Within, no packet enters or leaves the network namespace of a process, and nobody is told so."""
    inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "iptables", "-w")
    rules = (("INPUT", "!", "-i", "lo", "-j", "DROP"), ("OUTPUT", "!", "-o", "lo", "-j", "DROP"))
    with ExitStack() as stack:
        for rule in rules:
            subprocess.run([*inside, "-I", *rule], check=True)
            # Who ended meanwhile, as it was alone, has taken its network along.
            stack.callback(subprocess.run, [*inside, "-D", *rule], capture_output=True)
        yield
