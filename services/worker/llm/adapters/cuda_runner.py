"""Steps of a graph on one of NVIDIA's GPUs: keys and values stay on the device, blocks are those of its operators."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from services.worker.adapters.onnx_runtime import ERRORS, onnxruntime, reason_of
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.graph_names import (
    BLOCKS,
    CUDA_BLOCK_SIZE,
    IDS,
    LOGITS,
    LONGEST,
    PAST,
    ROWS,
    STARTS,
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
from services.worker.llm.domain.step import Array, RunnerCapacity, StepInput

_DEVICE = "cuda"


class CudaRunner:
    """Runner of com.microsoft's PagedAttention."""

    def __init__(
        self, graph: Path, shape: ModelShape, settings: EngineSettings, session: SessionSettings
    ) -> None:
        """Load the graph and take the cache. Raises LoadError."""
        self._capacity = capacity_of(
            shape, settings, CacheForm(block_size=CUDA_BLOCK_SIZE, bytes_per_number=2)
        )
        self._binding: Binding | None = GraphSession(graph, session).binding()
        dims = [self._capacity.blocks, CUDA_BLOCK_SIZE, shape.kv_heads, shape.head_size]
        for layer in range(shape.layers):
            for past, written in cache_names(layer):
                self._binding.keep_on_device(past, written, _device_memory(dims))
        self._logits = LogitsRoom(self._capacity.max_requests, shape.vocabulary_size)

    @property
    def capacity(self) -> RunnerCapacity:
        return self._capacity

    def step(self, step: StepInput) -> Array:
        """Logits of the wanted rows."""
        if self._binding is None:
            raise closed_error()
        lengths = np.diff(step.starts)
        inputs: dict[str, Array] = {
            IDS: np.ascontiguousarray(step.ids, np.int64),
            STARTS: np.ascontiguousarray(step.starts, np.int32),
            PAST: np.ascontiguousarray(step.past, np.int32),
            BLOCKS: np.ascontiguousarray(step.blocks, np.int32),
            LONGEST: np.array([lengths.max(), (step.past + lengths).max()], np.int32),
            ROWS: np.ascontiguousarray(step.rows, np.int64),
        }
        logits = self._logits.rows(len(step.rows))
        self._binding.run(inputs, LOGITS, logits)
        return logits

    def close(self) -> None:
        """Give memory back, once a step that still computes has ended."""
        self._binding = None


def _device_memory(dims: Sequence[int]) -> Any:
    try:
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(dims), np.float16, _DEVICE, 0)
    except ERRORS as error:
        raise LoadError(f"the device has no room for its cache: {reason_of(error)}") from error
