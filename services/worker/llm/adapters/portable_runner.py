"""Steps of a graph of ONNX Runtime's own operators: each request has a slot that holds its whole context."""

import math
from pathlib import Path

import numpy as np

from services.worker.llm.adapters.cache_memory import CacheMemory
from services.worker.llm.adapters.graph_names import (
    IDS,
    LAST_PLACES,
    LENGTHS,
    LOGITS,
    MOST_TOKENS,
    ROWS,
    cache_names,
)
from services.worker.llm.adapters.graph_session import (
    Binding,
    GraphSession,
    LogitsRoom,
    SessionSettings,
    closed_error,
)
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.room import CacheForm, capacity_of
from services.worker.llm.domain.slot_runs import SlotRun, SlotRuns
from services.worker.llm.domain.step import Array, RunnerCapacity, StepInput


class PortableRunner:
    """Runner of slots."""

    def __init__(
        self, graph: Path, shape: ModelShape, settings: EngineSettings, session: SessionSettings
    ) -> None:
        """Load the graph and take the cache. Raises LoadError."""
        self._capacity = capacity_of(shape, settings, CacheForm(bytes_per_number=4))
        slots, length = self._capacity.blocks, self._capacity.block_size
        cache_shape = (slots, shape.kv_heads, length, shape.head_size)
        memory = CacheMemory(2 * shape.layers * math.prod(cache_shape) * 4)
        self._caches = [
            (names, memory.array(np.float32, cache_shape))
            for layer in range(shape.layers)
            for names in cache_names(layer)
        ]
        self._session: GraphSession | None = GraphSession(graph, session)
        self._runs = SlotRuns(slots, length)
        self._bindings: dict[tuple[int, int], Binding] = {}
        # One row more: a run whose logits nobody wants computes one all the same.
        self._logits = LogitsRoom(self._capacity.max_requests + 1, shape.vocabulary_size)

    @property
    def capacity(self) -> RunnerCapacity:
        return self._capacity

    def step(self, step: StepInput) -> Array:
        """Logits of the wanted rows."""
        wanted = len(step.rows)
        logits = self._logits.rows(wanted + 1)
        order: list[Array] = []
        done = 0
        for run in self._runs.of(step):
            count = len(run.rows)
            self._compute(run, logits[done : done + max(count, 1)])
            order.append(run.answers)
            done += count
        places = np.concatenate(order) if order else np.empty(0, np.int64)
        if np.array_equal(places, np.arange(wanted)):
            return logits[:wanted]
        answers = np.empty_like(logits[:wanted])
        answers[places] = logits[:wanted]
        return answers

    def _compute(self, run: SlotRun, logits: Array) -> None:
        binding = self._binding(run.first, len(run.past))
        # The runtime counts a request's tokens less one; one that idles counts as if it had one.
        last = np.maximum(run.past + run.lengths - 1, 0).astype(np.int32)
        most = np.array(max(int(last.max()) + 1, run.ids.shape[1]), np.int32)
        rows = run.rows if len(run.rows) else np.zeros(1, np.int64)
        inputs = {
            IDS: run.ids,
            LAST_PLACES: last,
            MOST_TOKENS: most,
            LENGTHS: run.lengths,
            ROWS: rows,
        }
        binding.run(inputs, LOGITS, logits)

    def _binding(self, first: int, count: int) -> Binding:
        """Bound to a range of slots; kept, since there are two names of two arrays in each layer."""
        if self._session is None:
            raise closed_error()
        found = self._bindings.get((first, count))
        if found is None:
            found = self._bindings[first, count] = self._session.binding()
            for (past, written), cache in self._caches:
                part = cache[first : first + count]
                found.keep_input(past, part)
                found.keep_output(written, part)
        return found

    def close(self) -> None:
        """Give memory back, once a run that still computes has ended."""
        self._session = None
        self._bindings.clear()
        self._caches.clear()
