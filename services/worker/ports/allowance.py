"""What callers may still use: set aside before the work, settled after it."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.caller import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The most that one request may use; or, once it has ended, what it did use."""

    input_tokens: int = 0
    cached_tokens: int = 0  # of the input tokens
    output_tokens: int = 0
    rows: int = 0
    compute_seconds: float = 0.0


class Reservation(Protocol):
    """What was set aside for one request. Used on the event loop."""

    def settle(self, used: Need) -> None:
        """The request has ended and used this; the rest is free again. Once, in every ending."""

    def stop_after(self) -> int | None:
        """Output tokens after which the stream must end with finish reason `budget`; None: nothing says so."""

    def trailers(self) -> Sequence[tuple[str, str]]:
        """Headers `x-ratelimit-limit-…`, `-remaining-…`, `-reset-…` of budgets; empty without any."""


class Allowance(Protocol):
    """Budgets of all callers on this worker. Used on the event loop."""

    def reserve(
        self, caller: Caller, version: VersionName, need: Need
    ) -> Reservation | Awaitable[Reservation]:
        """Set the need aside; awaitable only if metering must be asked first (a new caller, a lease that is used up).

        Raises ResourceExhaustedError that names the budget, what is left and when it begins anew.
        """
