"""The way of one request to its answer, as fronts ask for it: the batcher, or what stands before it."""

from collections.abc import Callable
from typing import Any, Protocol

from services.worker.domain.batch import Answer
from services.worker.domain.infer_request import InferRequest

Deliver = Callable[[Answer], None]
Ticket = Any  # the gate's own


class Gate(Protocol):
    """Takes requests in; one event loop only."""

    def admit(self, request: InferRequest, deadline: float | None, deliver: Deliver) -> Ticket:
        """Take a request in; `deliver` is called once, later, never within, unless the request leaves before.

        `deadline` is of the monotonic clock. Raises InferplaneError if it is refused at the door.
        """
        ...

    def leave(self, ticket: Ticket) -> None:
        """The caller has gone: it is not told any more. Nothing if it has been told."""
        ...
