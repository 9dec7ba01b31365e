"""The operators' library in the variants that this CPU runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.native_library import OPERATORS, compiler
from services.worker.llm.adapters import operators


def built_library() -> Path:
    """The library, built if it isn't there; without a compiler the test is skipped."""
    command = compiler()
    found = operators.library()
    if found is None and command is None:
        pytest.skip("there is no C++ compiler to build the operators with")
    return found or OPERATORS.build(command or ())


@contextmanager
def variant_in_use(name: str) -> Iterator[Path]:
    """The library using this variant, and the one it used before afterwards; skipped where the CPU lacks it."""
    path = built_library()
    before = operators.variant(path)
    if not operators.select(path, name):
        pytest.skip(f"this CPU can't run the variant {name}")
    try:
        yield path
    finally:
        operators.select(path, before)
