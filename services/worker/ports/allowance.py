"""What callers may still use: set aside before the work, settled after it."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from services.rpc.names import VersionName
from services.worker.domain.caller import Caller
from services.worker.domain.need import Need as Need


class Reservation(Protocol):
    """What was set aside for one request. Used on the event loop."""

    def settle(self, used: Need) -> None:
        """The request has ended and used this; the rest is free again. Once, in every ending; more is harmless."""
        ...

    def release(self) -> None:
        """The request was not accepted after all: nothing was used, and it doesn't count as a request."""
        ...

    def stop_after(self) -> int | None:
        """Output tokens after which the stream must end with finish reason `budget`; None: nothing says so.

        May be asked again at any time: it grows when others settle or more is granted meanwhile, and a
        stream that has come to it should ask once more before it ends.
        """
        ...

    def trailers(self) -> Sequence[tuple[str, str]]:
        """Headers `x-ratelimit-limit-…`, `-remaining-…`, `-reset-…` of budgets; empty without any."""
        ...


class Allowance(Protocol):
    """Budgets of all callers on this worker. Used on the event loop."""

    def reserve(
        self, caller: Caller, version: VersionName, need: Need
    ) -> Reservation | Awaitable[Reservation]:
        """Set the need aside; awaitable only if metering must be asked first (a new caller, a lease that is used up).

        Raises ResourceExhaustedError that names the budget, what is left and when it begins anew, and
        UnavailableError if metering is away for longer than leases last and the settings say `closed`.
        Nothing is set aside if the wait is cancelled.
        """
        ...
