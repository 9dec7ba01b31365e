"""Standing by: of several registries on one store one serves, the others wait for their turn."""

from services.rpc.errors import UnavailableError


def superseded_error() -> UnavailableError:
    """This process is not the one that serves any more; the call may have done something before it was."""
    return UnavailableError(
        "another registry has taken over, call that one; what this call was to change last wasn't changed",
        reason="SUPERSEDED",
        retry_after=1.0,
    )


def abandoned_error() -> UnavailableError:
    """The turn of this process is over before the database said what became of the call."""
    return UnavailableError(
        "this registry serves no more, and the database didn't say what became of this call; look before"
        " trying again",
        reason="SUPERSEDED",
        retry_after=1.0,
    )


def standby_error() -> UnavailableError:
    """This process is not the one that serves; nothing was done, so any call may be made elsewhere."""
    return UnavailableError(
        "this registry stands by: another one serves, or none while the database can't be reached",
        reason="STANDBY",
        retry_after=1.0,
    )
