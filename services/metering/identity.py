"""The area of identity: projects, API keys, what signs them, and what the edge must know of all that."""

from collections.abc import Sequence

import grpc

from services.metering.area import Surroundings


class Identity:
    """The built area."""

    services: Sequence[str] = ()

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def register(self, server: grpc.aio.Server) -> None:
        pass

    async def start(self) -> None:
        pass

    async def run(self) -> None:
        pass

    def close(self) -> None:
        pass


def build(around: Surroundings) -> Identity:
    """Put the area together."""
    return Identity(around)
