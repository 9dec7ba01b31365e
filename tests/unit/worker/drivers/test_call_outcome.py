"""What ended a call decides how it is counted."""

import asyncio

import pytest

from services.rpc.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from services.worker.domain.counters import Outcome
from services.worker.drivers.call_outcome import call_outcome

CASES: dict[str, tuple[BaseException | None, Outcome]] = {
    "an answer": (None, Outcome.SUCCEEDED),
    "a wrong request": (InvalidArgumentError("wrong"), Outcome.INVALID),
    "a full queue": (ResourceExhaustedError("full"), Outcome.REJECTED),
    "a deadline": (DeadlineExceededError("late"), Outcome.CANCELLED),
    "a caller who has gone": (asyncio.CancelledError(), Outcome.CANCELLED),
    "a reader who has gone from a stream": (GeneratorExit(), Outcome.CANCELLED),
    "our own error": (InternalError("broken"), Outcome.FAILED),
    "anything unknown": (ValueError("?"), Outcome.FAILED),
}


@pytest.mark.parametrize(("error", "outcome"), CASES.values(), ids=CASES.keys())
def test_how_a_call_is_counted(error: BaseException | None, outcome: Outcome) -> None:
    """The caller's doing is never counted as ours, nor ours as his."""
    assert call_outcome(error) is outcome
