"""The memory that models run in: one arena for all sessions of the process, bounded, given back when it is free."""

import contextlib
import ctypes
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from services.worker.adapters.onnx_runtime import onnxruntime, runtime_state

_ARENA = 1  # arena_extend_strategy kSameAsRequested: a run's growth is what it asked for, not the next power of two
_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# y = x for a tensor without elements, as ONNX: only sessions can shrink the arena, at the end of a run.
_NOTHING = (
    b'\x08\t:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x00'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x00B\x04\n\x00\x10\x11"
)


class RuntimeMemory:
    """Memory of ONNX Runtime's sessions; one in a process, since the runtime has one registry of allocators."""

    def __init__(self, limit: int) -> None:
        """Register the arena.

        `limit` is in bytes, 0 is none. It bounds what runs hold at once together with weights that the runtime
        repacked; weights alone may exceed it, and the runtime then bounds nothing.
        """
        info = runtime_state.OrtMemoryInfo(
            "Cpu",
            runtime_state.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
            0,
            runtime_state.OrtMemType.DEFAULT,
        )
        config = {"arena_extend_strategy": _ARENA}
        if limit:
            config["max_mem"] = limit
        onnxruntime.create_and_register_allocator(info, runtime_state.OrtArenaCfg(config))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.share(options)
        self._nothing = onnxruntime.InferenceSession(
            _NOTHING, options, providers=["CPUExecutionProvider"]
        )
        self._shrinking = onnxruntime.RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._alive: weakref.WeakSet[object] = weakref.WeakSet()
        self._loads = 0

    def share(self, options: Any) -> None:
        """Let sessions of these options take their memory from the arena."""
        options.add_session_config_entry("session.use_env_allocators", "1")

    def loaded(self, session: object) -> None:
        """A model has been loaded; what loading it took is given back at once."""
        self._alive.add(session)
        self._loads += 1
        _trim()

    def turnover(self) -> int:
        """How often a model came or went so far."""
        return 2 * self._loads - len(self._alive)

    def resident(self) -> int:
        """Bytes that the process occupies now; 0 where the system doesn't say."""
        with contextlib.suppress(OSError), _STATM.open("rb") as file:
            return int(file.read().split()[1]) * _PAGE
        return 0

    def release(self) -> None:
        """Give back what nothing uses."""
        self._nothing.run(None, {"x": np.empty(0, np.float32)}, self._shrinking)
        _trim()


def _trim() -> None:
    """Return what the C library keeps of freed memory; only glibc keeps much and can be asked."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
