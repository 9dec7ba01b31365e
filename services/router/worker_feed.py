"""Where the router hears who is alive: part of its composition root."""

from contextlib import AsyncExitStack
from typing import Protocol

from services.router.adapters.discovery_watch import DiscoveryWatch
from services.router.ports.feeds import WorkerSink
from services.router.settings import RouterSettings
from services.rpc import channel
from services.rpc.clock import SystemClock
from services.rpc.tls import Security

_CONSUL_SETTLES = 30.0  # seconds in which agents that came back tell their services to the servers


class Feed(Protocol):
    """Tells a sink who is alive."""

    async def run(self) -> None:
        """Follow for ever."""
        ...


async def worker_feed(
    config: RouterSettings, security: Security, sink: WorkerSink, stack: AsyncExitStack
) -> Feed:
    """The list of workers, of the registry or of Consul."""
    if config.in_consul:
        # A client of HTTP takes its time to import; who needs none begins at once.
        from services.router.adapters.consul_feed import ConsulFeed
        from services.rpc.consul import Consul, ConsulAccess
        from services.rpc.consul_roster import ConsulRoster
        from services.rpc.consul_watch import ConsulWatch, Pace

        return ConsulWatch(
            Consul(ConsulAccess.of(config)),
            ConsulFeed(sink),
            ConsulRoster(),
            SystemClock(),
            Pace.of_lease(config.lease_seconds),
        )
    discovery = await stack.enter_async_context(
        channel.connect(config.discovery_service(), security=security)
    )
    return DiscoveryWatch(discovery, sink)


def settle_seconds(config: RouterSettings) -> float:
    """How long a first picture in which workers are missing may yet be completed."""
    return max(config.lease_seconds, _CONSUL_SETTLES if config.in_consul else 0.0)
