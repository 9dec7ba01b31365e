"""How long-lived streams to other services are kept up: again and again, with back-off and jitter."""

import grpc
import structlog
import tenacity

_log = structlog.get_logger(__name__)

# What a peer that restarts, or one that is not up yet, answers.
_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class StreamEndedError(Exception):
    """The peer ended a stream that should go on for ever."""


def _passes(error: BaseException) -> bool:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in _PASSING
    return isinstance(error, StreamEndedError)


def reconnecting(peer: str) -> tenacity.AsyncRetrying:
    """Attempts without end for `async for attempt in …: with attempt: …`; errors that don't pass are raised.

    Back-off starts at 50 ms and is capped at 2 s; it counts from the first failure of the loop, so a caller that was
    connected for long should begin a new loop.
    """

    def note(state: tenacity.RetryCallState) -> None:
        outcome = state.outcome
        error = outcome.exception() if outcome is not None else None
        text = error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error)
        _log.warning("lost peer, trying again", peer=peer, error=text, attempt=state.attempt_number)

    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_passes),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
        before_sleep=note,
        reraise=True,
    )
