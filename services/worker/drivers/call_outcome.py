"""How a call ended, whatever ended it."""

import asyncio

from services.rpc.errors import InferplaneError
from services.worker.domain.counters import Outcome, outcome_of


def call_outcome(error: BaseException | None) -> Outcome:
    """Of a call that ended with this error; None: with an answer."""
    if error is None:
        return Outcome.SUCCEEDED
    if isinstance(error, InferplaneError):
        return outcome_of(error.kind)
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return Outcome.CANCELLED
    return Outcome.FAILED
