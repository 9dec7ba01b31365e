"""The way in for calls that are no tasks: most may go on at once, some must wait until metering was asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.rpc.errors import InferplaneError
from services.rpc.interceptor import known

T = TypeVar("T")


class Entering:
    """One that waits. Its end is told once, unless it leaves before."""

    def __init__(
        self,
        asked: Awaitable[T],
        go_on: Callable[[T], None],
        failed: Callable[[InferplaneError], None],
        method: str,
    ) -> None:
        """Begin to wait; `go_on` may raise, as what is waited for may."""
        self._task = asyncio.get_running_loop().create_task(_wait(asked, go_on, failed, method))

    def leave(self) -> None:
        """The caller has gone."""
        self._task.cancel()


async def _wait(
    asked: Awaitable[T],
    go_on: Callable[[T], None],
    failed: Callable[[InferplaneError], None],
    method: str,
) -> None:
    try:
        go_on(await asked)
    except Exception as error:  # noqa: BLE001 - as in the interceptor, which calls that are tasks pass
        failed(known(error, method))
