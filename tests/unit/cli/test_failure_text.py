"""Failures on a terminal: each thing that is wrong is said once."""

import pytest

from services.cli.adapters.failure_text import as_lines
from services.rpc.errors import FieldViolation, InferplaneError, InvalidArgumentError

_A, _B = FieldViolation("a", "1; allowed: 2"), FieldViolation("b.c", "3; allowed: 4")


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (InvalidArgumentError.of_fields([_A]), ["error: a: 1; allowed: 2"]),
        (
            InvalidArgumentError.of_fields([_A, _B]),
            ["error: 2 fields are wrong", "  a: 1; allowed: 2", "  b.c: 3; allowed: 4"],
        ),
        (
            InvalidArgumentError("it is wrong", violations=[_A, _B]),
            ["error: it is wrong", "  a: 1; allowed: 2", "  b.c: 3; allowed: 4"],
        ),
        (
            InvalidArgumentError("full", retry_after=0.5),
            ["error: full", "  try again in 0.5 s"],
        ),
    ],
)
def test_lines(error: InferplaneError, lines: list[str]) -> None:
    """One line for one thing; a line for each field if several are wrong."""
    assert as_lines(error).splitlines() == lines
