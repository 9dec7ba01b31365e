"""A version that has been loaded and can serve."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from services.worker.domain.assignment import Tuning
from services.worker.domain.execution import Execution
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.served_version import ServedVersion
from services.worker.ports.compute import Compute


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """What serves, what computes for it, and how; equal only to itself."""

    served: ServedVersion | ServedText
    compute: Compute
    execution: Execution
    measured: Tuning | None  # while it was loaded
    kept: AsyncExitStack  # the hold on its cached files

    @property
    def tuning(self) -> Tuning | None:
        """What it runs by besides settings and defaults."""
        return self.served.spec.tuning or self.measured

    def end_reruns(self) -> None:
        """What is computed of it elsewhere ends."""
        if isinstance(self.served, ServedVersion) and self.served.suspects is not None:
            self.served.suspects.close()
