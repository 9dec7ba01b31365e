"""The thing that computes: a graph in a runtime, with the cache of keys and values."""

from typing import Protocol

from services.worker.llm.domain.step import Array, RunnerCapacity, StepInput


class Runner(Protocol):
    """Computes steps, one at a time; called from the engine's thread only."""

    @property
    def capacity(self) -> RunnerCapacity:
        """What it has room for; fixed."""
        ...

    def step(self, step: StepInput) -> Array:
        """Logits, float32 [R, vocabulary]; keys and values of all T tokens are in the cache afterwards.

        The same request gives the same logits, bit for bit, whatever is computed beside it and however its prompt is
        cut in pieces. The array is the caller's until the next step. Frees the GIL meanwhile.

        Raises InternalError if the runtime fails; the cache's other blocks are as before.
        """
        ...

    def close(self) -> None:
        """Give memory back."""
        ...
