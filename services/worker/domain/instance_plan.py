"""How the instances of one version share a machine: threads and CPUs of each."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instance:
    """One of several places where a version's batches are computed."""

    intra_op_threads: int
    cpus: tuple[int, ...] = ()  # its threads are bound to them; empty: any


def plan(instances: int, intra_op_threads: int, cpus: Sequence[int]) -> tuple[Instance, ...]:
    """Instances with the CPUs shared out in order; with fewer CPUs than instances they are used in turn."""
    shares: list[tuple[int, ...]]
    if len(cpus) < instances:
        shares = [(cpus[i % len(cpus)],) if cpus else () for i in range(instances)]
    else:
        bounds = [i * len(cpus) // instances for i in range(instances + 1)]
        shares = [tuple(cpus[a:b]) for a, b in itertools.pairwise(bounds)]
    return tuple(Instance(intra_op_threads, share) for share in shares)


def can_share_session(instances: Sequence[Instance]) -> bool:
    """Whether one session serves all: it has no threads of its own, each run computes in its caller's thread."""
    return all(instance.intra_op_threads == 1 for instance in instances)
