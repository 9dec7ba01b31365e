"""How workers run a placed version, in few words: batch, instances and threads, and what they have to say of it."""

from collections.abc import Callable, Iterable

from inferplane.registry.v1 import placement_pb2

from services.cli.adapters.deployment import state_word

_UNKNOWN = "–"
_LAST_ATTEMPT = "last attempt: "  # before the reason, from workers that try again
Execution = placement_pb2.VersionExecution


def batch_of(status: placement_pb2.PlacementStatus) -> str:
    """Rows computed at once on the workers that have it loaded; `off`: requests don't share runs."""

    def word(execution: Execution) -> str:
        return str(execution.max_batch_size) if execution.max_batch_size > 1 else "off"

    return _each(status, word)


def threads_of(status: placement_pb2.PlacementStatus) -> str:
    """Instances × threads of each."""
    return _each(status, lambda e: f"{e.instances}×{e.intra_op_threads}")


def failures_of(status: placement_pb2.PlacementStatus) -> list[str]:
    """Why it fails, each reason once; a worker that tries again gives that of its last attempt."""
    reasons = {worker.reason for worker in status.workers if worker.reason}
    return sorted(r for r in reasons if r.removeprefix(_LAST_ATTEMPT) not in reasons - {r})


def notes_of(status: placement_pb2.PlacementStatus) -> list[str]:
    """Why batching is off, and warnings; each once."""
    loaded = _loaded(status)
    reasons = [f"not batched: {e.batching_off_reason}" for e in loaded if e.batching_off_reason]
    return list(dict.fromkeys((*reasons, *(text for e in loaded for text in e.warnings))))


def placement_fields(placements: Iterable[placement_pb2.Placement]) -> dict[str, str]:
    """A line for each pool that has the version."""
    return {f"on {p.name.split('/')[1]}": _line(p.status) for p in placements}


def _line(status: placement_pb2.PlacementStatus) -> str:
    words = sorted({state_word(worker.state) for worker in status.workers}) or ["no worker"]
    line = f"{', '.join(words)} ({status.ready_workers}/{status.live_workers})"
    if _loaded(status):
        line += f", batch {batch_of(status)}, instances×threads {threads_of(status)}"
    return "; ".join((line, *failures_of(status), *notes_of(status)))


def _loaded(status: placement_pb2.PlacementStatus) -> list[Execution]:
    return [worker.execution for worker in status.workers if worker.HasField("execution")]


def _each(status: placement_pb2.PlacementStatus, word: Callable[[Execution], str]) -> str:
    """What the workers say, each once."""
    return ", ".join(dict.fromkeys(word(e) for e in _loaded(status))) or _UNKNOWN
