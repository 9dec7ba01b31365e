"""The allowance where nothing is bounded."""

from collections.abc import Sequence

from services.rpc.names import VersionName
from services.worker.domain.caller import Caller
from services.worker.ports.allowance import Need, Reservation


class NothingReserved:
    """Reservation that costs nothing."""

    __slots__ = ()

    def settle(self, _used: Need) -> None:
        """Nothing was set aside."""

    def release(self) -> None:
        """Nothing was set aside."""

    def stop_after(self) -> int | None:
        """Nothing ends early."""
        return None

    def trailers(self) -> Sequence[tuple[str, str]]:
        """Nothing is to be told."""
        return ()


NOTHING_RESERVED: Reservation = NothingReserved()


class NoBudgets:
    """Allowance of everybody for everything."""

    def reserve(self, _caller: Caller, _version: VersionName, _need: Need) -> Reservation:
        """Always fits."""
        return NOTHING_RESERVED
