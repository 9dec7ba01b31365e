"""Where the worker says that it lives: part of its composition root."""

from contextlib import AsyncExitStack

from services.rpc import channel
from services.rpc.tls import Security
from services.worker.adapters.discovery_client import DiscoveryRegistration, Identity
from services.worker.ports.discovery import Registration
from services.worker.settings import WorkerSettings


async def registration(
    config: WorkerSettings, security: Security, identity: Identity, stack: AsyncExitStack
) -> Registration:
    """This worker's lease, with the registry or in Consul."""
    if config.in_consul:
        # A client of HTTP takes its time to import; who needs none begins at once.
        from services.rpc.consul import Consul, ConsulAccess
        from services.worker.adapters.consul_registration import ConsulRegistration

        consul = Consul(ConsulAccess.of(config))
        stack.push_async_callback(consul.close)
        return ConsulRegistration(consul, identity, config.lease_seconds)
    address = config.discovery_address or config.registry_address
    discovery = await stack.enter_async_context(channel.connect(address, security=security))
    return DiscoveryRegistration(discovery, identity, config.lease_seconds)
