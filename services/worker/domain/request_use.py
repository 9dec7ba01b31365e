"""What computing one request takes, noted by what computes it and read when it ends."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class RequestUse:
    """Of one request. One thread writes while others may read: each field by itself is right at any time."""

    queue_ns: int = 0  # before it was computed
    compute_ns: int = 0  # its share of the runs it was in
    cached_tokens: int = 0  # of its prompt
    preemptions: int = 0
    from_cache: bool = False  # answered by what was computed for another

    def ran(self, waited: float, compute_ns: int) -> None:
        """It waited so many seconds; this was its share of the run."""
        self.queue_ns = int(waited * 1e9)
        self.compute_ns += compute_ns
