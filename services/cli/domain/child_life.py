"""Life of a supervised process: which states follow which, and when it is started again. No clock of its own."""

from dataclasses import dataclass
from enum import Enum


class ChildState(Enum):
    """Where a supervised process stands."""

    IDLE = "idle"  # not yet started
    RUNNING = "running"
    WAITING = "waiting"  # died; started again when its back-off is over
    STOPPING = "stopping"  # asked to end
    ENDED = "ended"


_FOLLOWS = {
    ChildState.IDLE: {ChildState.RUNNING, ChildState.ENDED},
    ChildState.RUNNING: {ChildState.WAITING, ChildState.STOPPING},
    ChildState.WAITING: {ChildState.RUNNING, ChildState.ENDED},
    ChildState.STOPPING: {ChildState.ENDED},
    ChildState.ENDED: set(),
}


class IllegalTransitionError(Exception):
    """A state was to be followed by one that can't follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """When a process that died is started again; all times in seconds."""

    first_delay: float = 0.1
    factor: float = 2.0
    longest_delay: float = 10.0
    reset_after: float = 10.0  # a life this long forgets earlier deaths
    loop_after: int = 4  # short lives in a row that count as a crash loop

    def delay(self, deaths: int) -> float:
        """How long to wait after the given number of short lives in a row (1 or more)."""
        # The exponent is bounded so that a night of crashes can't overflow a float.
        return min(self.longest_delay, self.first_delay * self.factor ** min(deaths - 1, 32))


class ChildLife:
    """What is known of one supervised process: state, short lives in a row, when to start it again."""

    def __init__(self, policy: RestartPolicy) -> None:
        """Idle, never started."""
        self._policy = policy
        self._started_at = 0.0
        self.state = ChildState.IDLE
        self.starts = 0
        self.deaths = 0  # short lives in a row

    def started(self, now: float) -> None:
        """The process runs."""
        self._enter(ChildState.RUNNING)
        self._started_at = now
        self.starts += 1

    def died(self, now: float) -> float:
        """The process ended by itself; returns the seconds to wait before it is started again."""
        self._enter(ChildState.WAITING)
        lived_long = now - self._started_at >= self._policy.reset_after
        self.deaths = 1 if lived_long else self.deaths + 1
        return self._policy.delay(self.deaths)

    def stop(self) -> None:
        """It is to end: at once if no process runs, else when the process has ended."""
        if self.state in (ChildState.STOPPING, ChildState.ENDED):
            return
        running = self.state is ChildState.RUNNING
        self._enter(ChildState.STOPPING if running else ChildState.ENDED)

    def ended(self) -> None:
        """The process that was asked to end has ended."""
        self._enter(ChildState.ENDED)

    @property
    def stops(self) -> bool:
        """Whether it is not to be started again."""
        return self.state in (ChildState.STOPPING, ChildState.ENDED)

    @property
    def is_crash_looping(self) -> bool:
        """Whether it died again and again without living long."""
        return self.deaths >= self._policy.loop_after

    def _enter(self, state: ChildState) -> None:
        if state not in _FOLLOWS[self.state]:
            raise IllegalTransitionError(f"{state.value} can't follow {self.state.value}")
        self.state = state


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
