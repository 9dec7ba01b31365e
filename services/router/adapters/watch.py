"""A watch that is kept up for ever: lost, it is tried again at once, then with back-off."""

from collections.abc import Awaitable, Callable

import grpc
import structlog

from services.rpc.reconnect import StreamEndedError, reconnecting

_log = structlog.get_logger(__name__)


class Progress:
    """Whether a watch has heard anything since it began."""

    def __init__(self) -> None:
        self.heard = False


async def keep_up(
    peer: str, follow: Callable[[Progress], Awaitable[None]], lose: Callable[[], None]
) -> None:
    """Run `follow` again and again; `lose` is called each time that it ends.

    Args:
        peer: name for the log.
        follow: reads one stream to its end and sets `heard` at its first message.
        lose: hears that the stream has ended.
    """
    while True:
        progress = Progress()
        async for attempt in reconnecting(peer):
            with attempt:
                try:
                    await follow(progress)
                    raise StreamEndedError
                except (grpc.aio.AioRpcError, StreamEndedError) as error:
                    lose()
                    if not progress.heard:
                        raise
                    # It was connected: begin anew, so that back-off starts from its shortest wait.
                    _log.warning("lost peer", peer=peer, error=str(error))
