"""This worker's registration in Consul: a service with a check that must be renewed."""

import asyncio
from dataclasses import replace

import structlog
from inferplane.discovery.v1 import worker_pb2

from services.rpc import address as addresses
from services.rpc import consul_worker
from services.rpc.consul import (
    SERVICE,
    Consul,
    ConsulError,
    ConsulRefusedError,
    ConsulUnreachableError,
)
from services.worker.adapters.discovery_client import Identity, worker_message
from services.worker.ports.discovery import RegistrationError, WorkerReport

_log = structlog.get_logger(__name__)

_NOTE = {"note": "renewed by the worker"}  # always the same: another one would wake all who watch
_DEREGISTER_AFTER = "1m"  # of a failed check; Consul knows nothing shorter
_LAST_SECONDS = 1.0  # for the end of a registration


class ConsulRegistration:
    """Registration at a Consul agent.

    What is told is written to Consul only when something changes that routing needs; a beat renews the check, which
    the agent keeps to itself while it passes.
    """

    def __init__(self, consul: Consul, identity: Identity, lease: float) -> None:
        self._consul = consul
        self._identity = identity
        self._lease = lease
        self._id = f"inferplane-{identity.name.worker}"
        self._sequence = 0
        self._newest: worker_pb2.Worker | None = None  # as reported last
        self._written: tuple[str, int] | None = None  # at which agent, and which sequence
        self._meta: dict[str, str] = {}

    async def renew(self, report: WorkerReport) -> None:
        """Begin or renew the lease and replace what is known. Raises RegistrationError."""
        self._take(consul_worker.told(worker_message(self._identity, report)))
        try:
            async with asyncio.timeout(self._lease / 2):
                await self._at_some_agent()
        except TimeoutError as error:
            raise RegistrationError(
                f"no Consul agent answered within {self._lease / 2:g} s"
            ) from error
        except ConsulError as error:
            raise RegistrationError(f"Consul: {error}") from error

    async def end(self) -> None:
        """End the lease at once; not being able to is no error, it ends by itself."""
        access = self._consul.access
        await asyncio.gather(*(self._end_at(url) for url in access.urls))
        await self._consul.close()

    def _take(self, worker: worker_pb2.Worker) -> None:
        if worker == self._newest:
            return
        self._newest = worker
        self._sequence += 1
        self._meta = consul_worker.metadata(worker, self._sequence, self._lease)
        untold = consul_worker.untold(self._meta)
        if untold:
            _log.error("Consul can't be told all of this worker", untold=untold)

    async def _at_some_agent(self) -> None:
        for _ in self._consul.access.urls[1:]:
            try:
                await self._renew()
            except ConsulUnreachableError as error:
                _log.info("the agent does not answer, the next is asked", error=str(error))
                self._consul.move_on()
            else:
                return
        try:
            await self._renew()
        except ConsulUnreachableError:
            self._consul.move_on()
            raise

    async def _renew(self) -> None:
        if self._written != (self._consul.url, self._sequence):
            await self._register()
        try:
            await self._pass()
        except ConsulRefusedError as error:
            if not error.is_unknown_check:
                raise
            _log.info("the agent has lost this worker's registration", agent=self._consul.url)
            await self._register()
            await self._pass()

    async def _register(self) -> None:
        where = (self._consul.url, self._sequence)
        await self._consul.put("agent/service/register", self._service(), seconds=self._lease / 4)
        self._written = where

    async def _pass(self) -> None:
        # Said after each registration too: one that replaces another keeps the state of its check.
        path = f"agent/check/pass/{self._check}"
        await self._consul.put(path, parameters=_NOTE, seconds=self._lease / 4)

    @property
    def _check(self) -> str:
        return f"service:{self._id}"

    def _service(self) -> dict[str, object]:
        address = addresses.parse(self._identity.address)
        return {
            "ID": self._id,
            "Name": SERVICE,
            "Address": address.host,
            "Port": address.port,
            "Meta": self._meta,
            "Check": {
                "CheckID": self._check,
                "Name": "the worker renews its lease",
                "TTL": consul_worker.ttl_of(self._lease),
                "Status": "passing",
                "DeregisterCriticalServiceAfter": _DEREGISTER_AFTER,
            },
        }

    async def _end_at(self, url: str) -> None:
        path = f"agent/service/deregister/{self._id}"
        agent = Consul(replace(self._consul.access, urls=(url,)))
        try:
            await agent.put(path, seconds=_LAST_SECONDS)
        except ConsulError as error:
            _log.info("registration left to end by itself", agent=url, error=str(error))
        finally:
            await agent.close()
