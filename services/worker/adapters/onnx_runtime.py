"""ONNX Runtime, imported here first and nowhere else: its telemetry is off before it loads."""

import os

# Without this, importing it writes a device id and a database under the user's cache folder.
os.putenv("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

onnxruntime.disable_telemetry_events()
onnxruntime.set_default_logger_severity(4)  # what matters comes as an exception

# Everything that loading or running a model raises: the runtime's own classes share no root, and its binding turns
# std::bad_alloc, std::out_of_range, std::length_error and failed casts into Python's own.
ERRORS: tuple[type[Exception], ...] = (
    *(
        value
        for value in vars(runtime_state).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ),
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)

_MOST_TEXT = 400  # characters of the runtime's own text that callers see


def reason_of(error: Exception) -> str:
    """The runtime's text without its prefix; kept short, one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"


__all__ = ["ERRORS", "onnxruntime", "reason_of", "runtime_state"]
