"""Keeps a set of processes running and ends them in order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from services.cli.domain.child_life import RestartPolicy
from services.cli.drivers.child import Child, ChildSpec
from services.cli.ports.narration import Narration


class Supervisor:
    """Runs children; `stop` ends them stage by stage, `hurry` all at once."""

    def __init__(
        self,
        stages: Sequence[Sequence[ChildSpec]],
        narration: Narration,
        changed: Callable[[], None],
        policy: RestartPolicy | None = None,
    ) -> None:
        """Assign only.

        Args:
            stages: children in the order in which they are ended; all are started at once.
            narration: hears what happens.
            changed: called whenever a process has started or ended.
            policy: when a child that died is started again.
        """
        policy = policy or RestartPolicy()
        self._stages = [[Child(spec, narration, changed, policy) for spec in s] for s in stages]
        self._hurried = asyncio.Event()

    @property
    def children(self) -> list[Child]:
        """All children, in the order in which they are ended."""
        return [child for stage in self._stages for child in stage]

    async def run(
        self, until: Awaitable[None], drain: Callable[[float], Awaitable[None]], grace: float
    ) -> None:
        """Keep all running until `until` is over, then end them.

        Args:
            until: returns when it is time to end; must not raise.
            drain: lets what is in flight finish; given the seconds it may take.
            grace: seconds for the whole of draining and ending before the rest is killed.
        """
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                group.create_task(child.run(), name=child.spec.name)
            try:
                await until
            finally:
                await self._end(drain, grace)

    def hurry(self) -> None:
        """End everything at once; also while ending."""
        self._hurried.set()

    async def _end(self, drain: Callable[[float], Awaitable[None]], grace: float) -> None:
        ending = asyncio.create_task(self._end_in_order(drain, grace))
        hurrying = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({ending, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not ending.done():
            ending.cancel()
            await asyncio.wait({ending})
            for child in self.children:
                child.kill()
            return
        ending.result()

    async def _end_in_order(self, drain: Callable[[float], Awaitable[None]], grace: float) -> None:
        deadline = time.monotonic() + grace
        await drain(grace)
        for stage in self._stages:
            left = max(0.0, deadline - time.monotonic())
            await asyncio.gather(*(child.stop(left) for child in stage))
