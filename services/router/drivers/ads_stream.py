"""One Envoy's stream: carries requests to the client's state machine and its responses back, and decides nothing."""

import asyncio
from collections.abc import AsyncIterator

import structlog

from services.router.domain.order import Request, Response
from services.router.drivers.board import Board
from services.router.drivers.roster import Envoy, Roster

_log = structlog.get_logger(__name__)


async def serve(
    envoy: Envoy, requests: AsyncIterator[Request], board: Board, roster: Roster
) -> AsyncIterator[Response]:
    """Answer until the requests end."""
    wake = asyncio.Event()
    board.join(wake)
    roster.join(envoy)
    reading = asyncio.ensure_future(_read(envoy, requests, roster, wake))
    reading.add_done_callback(lambda _: wake.set())
    try:
        while not reading.done():
            await wake.wait()
            wake.clear()
            _offer(envoy, board)
            while (response := envoy.client.next()) is not None:
                yield response
        reading.result()
    finally:
        reading.cancel()
        roster.leave(envoy)
        board.leave(wake)


async def _read(
    envoy: Envoy, requests: AsyncIterator[Request], roster: Roster, wake: asyncio.Event
) -> None:
    async for request in requests:
        verdict = envoy.client.hear(request)
        if verdict is not None:
            roster.note(envoy, verdict)
        wake.set()


def _offer(envoy: Envoy, board: Board) -> None:
    publication = board.current
    if publication is not None and (publication.settled or not envoy.client.resumed):
        envoy.client.offer(publication.snapshot.seen_from(envoy.zone))
