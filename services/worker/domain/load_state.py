"""Where a version stands on this worker, and what may follow what."""

from dataclasses import dataclass
from enum import Enum


class LoadState(Enum):
    """Names are those of the registry's `LoadState`; GONE is never reported."""

    PENDING = "PENDING"  # assigned, not begun
    PULLING = "PULLING"  # files are fetched and verified
    LOADING = "LOADING"  # tried in a child process, then loaded here
    WARMING = "WARMING"  # answers its example
    READY = "READY"
    DRAINING = "DRAINING"  # unassigned: finishes what still comes and runs
    FAILED = "FAILED"  # does not load: tried again with back-off; or computes without end
    GONE = "GONE"


_S = LoadState

FOLLOWS: dict[LoadState, frozenset[LoadState]] = {
    _S.PENDING: frozenset({_S.PULLING, _S.FAILED, _S.GONE}),
    _S.PULLING: frozenset({_S.LOADING, _S.FAILED, _S.GONE}),
    _S.LOADING: frozenset({_S.WARMING, _S.FAILED, _S.GONE}),
    _S.WARMING: frozenset({_S.READY, _S.FAILED, _S.GONE}),
    # FAILED: a run is stuck. GONE: the worker itself stops.
    _S.READY: frozenset({_S.DRAINING, _S.FAILED, _S.GONE}),
    _S.DRAINING: frozenset({_S.GONE}),
    # READY: the run that was stuck has ended; DRAINING: unassigned before it has.
    _S.FAILED: frozenset({_S.PULLING, _S.READY, _S.DRAINING, _S.GONE}),
    _S.GONE: frozenset(),
}

# It has been loaded, or why it isn't is known.
SETTLED = frozenset({_S.READY, _S.DRAINING, _S.FAILED})

TRIES = frozenset({_S.PULLING, _S.LOADING, _S.WARMING})

# While a version drains, routes still move away from it: what comes is answered.
SERVES = frozenset({_S.READY, _S.DRAINING})


class TransitionError(Exception):
    """A state that may not follow: a fault in this program."""


class LoadError(Exception):
    """A version cannot be loaded now; the text is the reason that people see in its placement's status."""


@dataclass(slots=True)
class Life:
    """State of one version, changed only along FOLLOWS."""

    state: LoadState = LoadState.PENDING
    reason: str = ""  # why it FAILED, and while it is tried again why it did; empty otherwise
    _failure: str = ""  # of the last attempt

    def to(self, state: LoadState, reason: str = "") -> None:
        """Take the next state. Raises TransitionError if it may not follow."""
        if state not in FOLLOWS[self.state]:
            raise TransitionError(f"{state.value} may not follow {self.state.value}")
        if state is LoadState.FAILED:
            self._failure = reason
        elif self._failure and state in TRIES:
            reason = f"last attempt: {self._failure}"
        self.state, self.reason = state, reason
