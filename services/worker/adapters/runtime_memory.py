"""The memory that models run in: one arena for all sessions of the process, bounded, given back when it is free."""

import contextlib
import ctypes
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from services.worker.adapters.onnx_runtime import ERRORS, onnxruntime, runtime_state
from services.worker.domain.load_state import LoadError

_ARENA = 1  # arena_extend_strategy kSameAsRequested: a run's growth is what it asked for, not the next power of two
_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# y = Gather(x UINT8 [r, c], i INT64 [n]), as ONNX: only a session can shrink the arena, or ask it for memory.
_GATHER = (
    b'\x08\t:J\n\x11\n\x01x\n\x01i\x12\x01y"\x06Gather\x12\x01gZ\x15\n\x01x\x12\x10\n\x0e\x08\x02\x12\n\n\x03\x12'
    b"\x01r\n\x03\x12\x01cZ\x10\n\x01i\x12\x0b\n\t\x08\x07\x12\x05\n\x03\x12\x01nb\t\n\x01y\x12\x04\n\x02\x08"
    b"\x02B\x04\n\x00\x10\x11"
)
_ROW = 1 << 20  # bytes
_M_ARENA_MAX = -8  # of malloc.h
_HEAPS = 2


class RuntimeMemory:
    """Memory of ONNX Runtime's sessions; one in a process, since the runtime has one registry of allocators."""

    def __init__(self, limit: int) -> None:
        """Register the arena.

        `limit` is in bytes, 0 is none. It bounds what runs hold at once together with weights that the runtime
        repacked. Weights alone may exceed it; from then on the runtime bounds nothing (`is_bounded`).
        """
        self._limit = limit
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
        options.log_severity_level = 4
        self._gather = onnxruntime.InferenceSession(
            _GATHER, options, providers=["CPUExecutionProvider"]
        )
        self._shrinking = onnxruntime.RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._alive: weakref.WeakSet[object] = weakref.WeakSet()
        self._loads = 0

    def share(self, options: Any) -> None:
        """Let sessions of these options take their memory from the arena."""
        options.add_session_config_entry("session.use_env_allocators", "1")

    def loaded(self, session: object) -> None:
        """A model has been loaded; what loading it took is given back at once. Raises LoadError if it took all."""
        self._alive.add(session)
        self._loads += 1
        _trim()
        if self._limit and not self.is_bounded():
            raise LoadError(
                f"with its weights nothing is left of the {self._limit} bytes that runs may have"
                " (INFERPLANE_RUN_MEMORY_BYTES)"
            )

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
        feeds = {"x": np.empty((1, 0), np.uint8), "i": np.empty(0, np.int64)}
        self._gather.run(None, feeds, self._shrinking)
        _trim()

    def is_bounded(self) -> bool:
        """Whether the limit still holds: the arena refuses more than that."""
        if not self._limit:
            return False
        # Gather asks for memory before it looks at its indices: none of it is touched, whatever the arena says.
        outside = np.full(self._limit // _ROW + 1, 1, np.int64)
        try:
            self._gather.run(None, {"x": np.empty((1, _ROW), np.uint8), "i": outside})
        except ERRORS as error:
            return is_memory(error)
        raise AssertionError("an index outside was taken")


def is_memory(error: Exception) -> bool:
    """Whether the runtime says that memory is short."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or "Failed to allocate memory" in text
        or "std::bad_alloc" in text
        or "BFCArena" in text  # its bound is reached
    )


def share_heaps() -> None:
    """Let all threads share two heaps of the C library, from before the first thread: each keeps some free memory."""
    _ask_glibc("mallopt", _M_ARENA_MAX, _HEAPS)


def _trim() -> None:
    """Return what the C library keeps of freed memory."""
    _ask_glibc("malloc_trim", 0)


def _ask_glibc(function: str, *arguments: int) -> None:
    """Only glibc keeps much and can be asked."""
    if sys.platform == "linux":
        asked = getattr(ctypes.CDLL(None), function, None)
        if asked is not None:
            asked(*arguments)
