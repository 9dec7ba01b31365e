"""The operators' library, as the worker finds and loads it."""

import ctypes
from pathlib import Path

from services.native_library import OPERATORS

VARIANTS = ("avx512", "avx2", "portable")  # of its kernels; the best first


def library(prebuilt: Path | None = None) -> Path | None:
    """The library to load: the one given if it is there, else the one built from our sources; None: neither is."""
    return OPERATORS.find(prebuilt)


def variant(path: Path) -> str:
    """Which variant of the kernels a library uses in this process."""
    name = _loaded(path).inferplane_llm_variant
    name.restype = ctypes.c_char_p
    return str(name().decode())


def select(path: Path, name: str) -> bool:
    """Makes a library use another variant in this process; False, and no change, if this CPU can't run it."""
    chosen = _loaded(path).inferplane_llm_select
    chosen.restype = ctypes.c_bool
    return bool(chosen(name.encode()))


def _loaded(path: Path) -> ctypes.CDLL:
    # The same path is the same library, also when ONNX Runtime loaded it first.
    return ctypes.CDLL(str(path))
