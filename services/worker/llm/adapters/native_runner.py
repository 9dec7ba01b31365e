"""Steps of a graph of our own operators: flat tokens, and one cache of blocks for all layers."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from services.worker.llm.adapters.cache_memory import CacheMemory, take_first_pages
from services.worker.llm.adapters.graph_names import (
    BLOCK_SIZE,
    BLOCKS,
    CACHE,
    IDS,
    LOGITS,
    PAST,
    ROWS,
    STARTS,
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
from services.worker.llm.domain.step import Array, RunnerCapacity, StepInput

# Named as in StepInput.
_INPUTS = (
    (IDS, np.int64),
    (STARTS, np.int32),
    (PAST, np.int32),
    (BLOCKS, np.int32),
    (ROWS, np.int64),
)


class NativeRunner:
    """Runner of the operators in `native/`."""

    def __init__(
        self,
        graph: Path,
        shape: ModelShape,
        settings: EngineSettings,
        session: SessionSettings,
        cache_dtype: Any = np.float16,
    ) -> None:
        """Load the graph and take the cache. Raises LoadError."""
        form = CacheForm(block_size=BLOCK_SIZE, bytes_per_number=np.dtype(cache_dtype).itemsize)
        self._capacity = capacity_of(shape, settings, form)
        block = BLOCK_SIZE * shape.head_size
        cache_shape = (shape.layers, 2, self._capacity.blocks, shape.kv_heads, block)
        size = math.prod(cache_shape) * np.dtype(cache_dtype).itemsize
        cache = CacheMemory(size).array(cache_dtype, cache_shape)
        take_first_pages(part for layer in cache for part in layer)
        self._binding: Binding | None = GraphSession(graph, session).binding()
        self._binding.keep_input(CACHE, cache)
        self._logits = LogitsRoom(self._capacity.max_requests, shape.vocabulary_size)

    @property
    def capacity(self) -> RunnerCapacity:
        return self._capacity

    def step(self, step: StepInput) -> Array:
        """Logits of the wanted rows."""
        if self._binding is None:
            raise closed_error()
        inputs = {name: np.ascontiguousarray(getattr(step, name), dtype) for name, dtype in _INPUTS}
        logits = self._logits.rows(len(step.rows))
        self._binding.run(inputs, LOGITS, logits)
        return logits

    def close(self) -> None:
        """Give memory back, once a step that still computes has ended."""
        self._binding = None
