"""Follows the registry's assignments for this pool, across restarts of the registry."""

from collections.abc import Callable, Mapping

import structlog
import tenacity

from services.rpc.names import VersionName
from services.worker.domain.assignment import Assignment, AssignmentTable
from services.worker.ports.registry import (
    AssignmentSource,
    ConnectionLostError,
    RevisionUnavailableError,
)

_log = structlog.get_logger(__name__)

Assign = Callable[[Mapping[VersionName, Assignment]], None]


class AssignmentFollower:
    """Keeps a table of what is assigned and hands it on whenever it is complete."""

    def __init__(self, source: AssignmentSource, pool: str, assign: Assign) -> None:
        self._source = source
        self._pool = pool
        self._assign = assign
        self._table = AssignmentTable(pool)

    async def run(self) -> None:
        """Follow until cancelled; what is assigned stays while the registry is away."""
        while True:
            attempts = tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(ConnectionLostError),
                wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
                before_sleep=_note,
            )
            async for attempt in attempts:
                with attempt:
                    await self._follow()

    async def _follow(self) -> None:
        """One stream; ends after it delivered something and broke, so that back-off begins anew."""
        # Reading from the start begins with an empty table; what was known stays in force until that is complete.
        table = self._table if self._table.revision else AssignmentTable(self._pool)
        delivered = False
        try:
            async for batch in self._source.watch(table.revision):
                table.apply(batch)
                if batch.synced:
                    self._table = table
                    self._assign(table.assigned())
                    delivered = True
        except RevisionUnavailableError:
            _log.warning("registry no longer has our revision, reading everything again")
            self._table = AssignmentTable(self._pool)
        except ConnectionLostError as error:
            if not delivered:
                raise
            _log.warning("lost registry, trying again", error=str(error))


def _note(state: tenacity.RetryCallState) -> None:
    assert state.outcome is not None
    _log.warning(
        "registry not reached, trying again",
        error=str(state.outcome.exception()),
        attempt=state.attempt_number,
    )
