"""Where alerts of spending are kept, and what they told."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from services.metering.domain.spending import Notice, SpendingAlert


class AlertStore(Protocol):
    """What was changed is durable when it returns."""

    def follow(self, taken: Callable[[Sequence[str]], None]) -> None:
        """Have somebody hear for which projects other processes set alerts: soon after they did."""
        ...

    def alone(self) -> AbstractAsyncContextManager[None]:
        """A block that no other process is in meanwhile, as far as it is not cut off from the store."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes may note and tell, too."""
        ...

    async def put(self, alert: SpendingAlert, most: int) -> SpendingAlert:
        """Make it, or take the place of the one there is (whose time of creation stays).

        ResourceExhaustedError if its project has so many others already.
        """
        ...

    async def alerts(self, project: str) -> Sequence[SpendingAlert]:
        """Of a project, or of all (empty), ordered by name."""
        ...

    async def delete(self, project: str, alert: str) -> bool:
        """Whether there was one; its notices stay."""
        ...

    async def tell(self, project: str, month: int, now_us: int) -> Sequence[Notice]:
        """Note what the project's spending in a month has reached and was not told yet."""
        ...

    async def months(self, projects: Collection[str]) -> Sequence[tuple[str, int]]:
        """Projects and months of which there is spending."""
        ...

    async def notices(self, project: str, before: int, most: int) -> Sequence[Notice]:
        """The newest notices with a smaller id (0: of all); of a project, or of all (empty)."""
        ...

    async def undelivered(self, after: int, most: int) -> Sequence[Notice]:
        """The oldest notices with a greater id for a webhook that has not taken them; it is the alert's present one."""
        ...

    async def delivered(self, notice: Notice, now_us: int) -> None:
        """Its webhook has taken it."""
        ...

    async def give_up(self, before_us: int) -> Sequence[Notice]:
        """Notices that no webhook took and that are older, or whose alert has none any more: they wait no longer."""
        ...


class Webhook(Protocol):
    """Tells others."""

    async def post(self, notice: Notice) -> bool:
        """Whether it was taken."""
        ...
