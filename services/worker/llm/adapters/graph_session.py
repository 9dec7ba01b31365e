"""A graph of a language model in ONNX Runtime: opening it, computing a step, and its errors in our words."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from services.rpc.errors import InternalError
from services.worker.adapters.onnx_runtime import ERRORS, onnxruntime, reason_of
from services.worker.adapters.runtime_memory import RuntimeMemory
from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.step import Array

_CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a graph is opened."""

    threads: int = 0  # 0: as many as CPUs
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    operators: Path | None = None  # the library of our own
    memory: RuntimeMemory | None = field(default=None, compare=False)  # shared with tensor models


class GraphSession:
    """One graph whose inputs and outputs lie in memory of our own."""

    def __init__(self, graph: Path, settings: SessionSettings) -> None:
        """Load it. Raises LoadError."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.threads or cpus()
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # The graph is written as it shall run; what the optimiser would look for is not there.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # A step's threads spin while it runs, and let others have the cores between steps.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # A pattern is kept for each combination of shapes, and every step has its own.
        options.enable_mem_pattern = False
        if settings.memory is not None:
            settings.memory.share(options)
        try:
            if settings.operators is not None:
                options.register_custom_ops_library(str(settings.operators))
            self._session = onnxruntime.InferenceSession(
                str(graph), options, providers=list(settings.providers)
            )
        except ERRORS as error:
            reason = reason_of(error).replace(f"{graph.parent}/", "")
            raise LoadError(f"ONNX Runtime cannot load its graph: {reason}") from error
        if settings.memory is not None:
            settings.memory.loaded(self)

    def binding(self) -> "Binding":
        """Places for inputs and outputs, for one kind of step."""
        return Binding(self._session)


class Binding:
    """Inputs and outputs of a graph in memory of ours.

    It keeps alive what a run needs, session and memory, also if its owner lets go of all of it meanwhile.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._places = session.io_binding()
        self._kept: list[object] = []

    def keep_input(self, name: str, array: Array) -> None:
        """An input of all runs; contiguous."""
        self._kept.append(array)
        self._places.bind_input(name, _CPU, 0, array.dtype.type, array.shape, array.ctypes.data)

    def keep_output(self, name: str, array: Array) -> None:
        """An output of all runs; contiguous."""
        self._kept.append(array)
        self._bind_output(name, array)

    def keep_on_device(self, read: str, written: str, value: Any) -> None:
        """What is an input and an output of all runs, in a device's memory."""
        self._kept.append(value)
        self._places.bind_ortvalue_input(read, value)
        self._places.bind_ortvalue_output(written, value)

    def run(self, inputs: Mapping[str, Array], output: str, written: Array) -> None:
        """Compute; frees the GIL meanwhile. Arrays are contiguous. Raises InternalError."""
        for name, array in inputs.items():
            self._places.bind_cpu_input(name, array)
        self._bind_output(output, written)
        try:
            self._session.run_with_iobinding(self._places)
        except ERRORS as error:
            raise InternalError(
                f"ONNX Runtime failed in a step: {reason_of(error)}", reason="STEP_FAILED"
            ) from error

    def _bind_output(self, name: str, array: Array) -> None:
        self._places.bind_output(name, _CPU, 0, array.dtype.type, array.shape, array.ctypes.data)


class LogitsRoom:
    """Memory for logits, used again by each step."""

    def __init__(self, rows: int, vocabulary_size: int) -> None:
        self._room = np.empty((rows, vocabulary_size), np.float32)

    def rows(self, count: int) -> Array:
        """The first `count` rows; more memory is taken if a step wants more than ever before."""
        if count > len(self._room):
            self._room = np.empty((count, self._room.shape[1]), np.float32)
        return self._room[:count]


def closed_error() -> InternalError:
    """What a step is told whose runner was closed: the version is being unloaded."""
    return InternalError("the runner is closed", reason="RUNNER_CLOSED")


def cpus() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
