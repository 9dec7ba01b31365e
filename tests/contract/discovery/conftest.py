"""Discovery as a worker and a router see it: kept by the registry itself, and by a real Consul agent."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from inferplane.discovery.v1.discovery_service_pb2_grpc import (
    add_DiscoveryServiceServicer_to_server,
)

from services.registry.drivers.leases import Leases
from services.registry.servicers.discovery_service import DiscoveryService
from services.router.adapters.consul_feed import ConsulFeed
from services.router.adapters.discovery_watch import DiscoveryWatch
from services.router.ports.feeds import WorkerSink
from services.rpc import channel
from services.rpc.clock import SystemClock
from services.rpc.consul import Consul
from services.rpc.consul_roster import ConsulRoster
from services.rpc.consul_watch import ConsulWatch, Pace
from services.rpc.server import RpcServer
from services.worker.adapters.consul_registration import ConsulRegistration
from services.worker.adapters.discovery_client import DiscoveryRegistration, Identity
from services.worker.ports.discovery import Registration
from tests.consul_agent import ConsulAgent, needs_consul
from tests.discovery_parts import LEASE


class Discovery(Protocol):
    """Whoever keeps the list."""

    def registration(self, identity: Identity) -> Registration: ...

    async def follow(self, sink: WorkerSink) -> None:
        """Feed the sink for ever."""
        ...

    async def start(self) -> None:
        """Begin with an empty list."""
        ...

    async def kill(self) -> None:
        """End as a crash would; the list is forgotten."""
        ...

    async def stop(self) -> None: ...


@dataclass(slots=True)
class Embedded:
    """Leases of the registry, behind a real server."""

    folder: Path
    leases: Leases = field(init=False)
    server: RpcServer = field(init=False)
    ending: asyncio.Task[None] = field(init=False)
    channels: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def address(self) -> str:
        return f"unix:{self.folder}/registry.sock"

    def registration(self, identity: Identity) -> Registration:
        opened = channel.connect(self.address)
        self.channels.push_async_callback(opened.close)
        return DiscoveryRegistration(opened, identity, LEASE)

    async def follow(self, sink: WorkerSink) -> None:
        async with channel.connect(self.address) as opened:
            await DiscoveryWatch(opened, sink).run()

    async def start(self) -> None:
        self.leases = Leases(SystemClock())
        self.server = RpcServer(address=self.address, max_message_bytes=1 << 23)
        add_DiscoveryServiceServicer_to_server(DiscoveryService(self.leases), self.server.grpc)
        await self.server.start([])
        self.ending = asyncio.create_task(self.leases.run())

    async def kill(self) -> None:
        self.leases.close()
        await self.server.stop(0)
        self.ending.cancel()
        await asyncio.gather(self.ending, return_exceptions=True)

    async def stop(self) -> None:
        await self.channels.aclose()
        await self.kill()


@dataclass(slots=True)
class InConsul:
    """A real agent, which forgets all when it ends."""

    folder: Path
    agent: ConsulAgent = field(init=False)
    clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        self.agent = ConsulAgent(self.folder)

    def registration(self, identity: Identity) -> Registration:
        consul = Consul(self.agent.access)
        self.clients.push_async_callback(consul.close)
        return ConsulRegistration(consul, identity, LEASE)

    async def follow(self, sink: WorkerSink) -> None:
        consul = Consul(self.agent.access)
        feed, roster = ConsulFeed(sink), ConsulRoster()
        await ConsulWatch(consul, feed, roster, SystemClock(), Pace.of_lease(LEASE)).run()

    async def start(self) -> None:
        await self.agent.start()

    async def kill(self) -> None:
        self.agent.kill()

    async def stop(self) -> None:
        await self.clients.aclose()
        self.agent.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ip") as name:
        yield Path(name)


@pytest.fixture(params=["embedded", pytest.param("consul", marks=needs_consul)])
async def discovery(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Discovery]:
    """Each adapter in turn, started."""
    found: Discovery = Embedded(folder) if request.param == "embedded" else InConsul(folder)
    await found.start()
    yield found
    await found.stop()
