"""The area of identity: projects, API keys, what signs them, and what the edge must know of all that."""

import asyncio
import time
from dataclasses import dataclass

import grpc
from inferplane.metering.v1 import (
    api_key_service_pb2,
    api_key_service_pb2_grpc,
    policy_service_pb2,
    policy_service_pb2_grpc,
    project_service_pb2,
    project_service_pb2_grpc,
)

from services.metering.adapters.admin_token_file import AdminTokenFile
from services.metering.adapters.identity_metrics import Gauges, IdentityMetrics
from services.metering.adapters.oidc_source import OidcSource
from services.metering.adapters.signing_files import SigningFiles
from services.metering.adapters.sql_identity import SqlIdentityStore
from services.metering.area import Surroundings
from services.metering.domain.policy_table import first_revision
from services.metering.drivers.api_keys import ApiKeys
from services.metering.drivers.first_admin import FirstAdmin, Secrets
from services.metering.drivers.issuers import Issuers
from services.metering.drivers.key_counts import KeyCounts
from services.metering.drivers.policy import Policy
from services.metering.drivers.projects import Projects
from services.metering.drivers.signing import Signing
from services.metering.drivers.tags import TagReads
from services.metering.servicers.api_key_service import ApiKeyService
from services.metering.servicers.policy_service import PolicyService
from services.metering.servicers.project_service import ProjectService


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the area is made of."""

    store: SqlIdentityStore
    policy: Policy
    signing: Signing
    first_admin: FirstAdmin
    counts: KeyCounts
    issuers: Issuers
    source: OidcSource


class Identity:
    """The built area. Other areas use `projects` and `tags`."""

    services = tuple(
        service.full_name
        for module in (project_service_pb2, api_key_service_pb2, policy_service_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    )

    def __init__(self, parts: _Parts, projects: Projects, keys: ApiKeys) -> None:
        self._parts = parts
        self.projects = projects
        self.keys = keys
        self.tags = TagReads(parts.store)

    def register(self, server: grpc.aio.Server) -> None:
        parts = self._parts
        project_service_pb2_grpc.add_ProjectServiceServicer_to_server(
            ProjectService(self.projects), server
        )
        api_key_service_pb2_grpc.add_ApiKeyServiceServicer_to_server(
            ApiKeyService(self.keys, parts.signing), server
        )
        policy_service_pb2_grpc.add_PolicyServiceServicer_to_server(
            PolicyService(parts.policy), server
        )

    async def start(self) -> None:
        parts = self._parts
        await parts.policy.load(parts.store)
        await parts.signing.start()
        await parts.first_admin.ensure()

    async def run(self) -> None:
        parts = self._parts
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(parts.policy.run())
                tasks.create_task(parts.counts.run())
                tasks.create_task(parts.issuers.run())
        finally:
            await parts.source.close()

    def interrupt(self) -> None:
        self._parts.policy.interrupt()

    def close(self) -> None:
        self._parts.policy.close()


def build(around: Surroundings) -> Identity:
    """Put the area together."""
    store, clock = SqlIdentityStore(around.database), around.clock
    signer = SigningFiles(around.folder / "signing")
    revision = first_revision(time.time_ns() // 1000, around.database.process)
    policy = Policy(clock, first_revision=revision)
    source = OidcSource(around.settings.oidc_ca_file)
    trusted = [issuer.trusted() for issuer in around.settings.oidc_issuers]
    admin_file = AdminTokenFile(around.settings.state_dir.absolute() / "admin.key")
    parts = _Parts(
        store=store,
        policy=policy,
        signing=Signing(store, signer, policy, clock),
        first_admin=FirstAdmin(store, Secrets(signer, admin_file), policy, clock),
        counts=KeyCounts(store, clock),
        issuers=Issuers(trusted, source, policy, clock),
        source=source,
    )
    around.metrics.register(
        IdentityMetrics(
            Gauges(
                keys=lambda: parts.counts.last,
                facts=lambda: len(policy),
                watchers=lambda: policy.readers,
                issuer_ages=parts.issuers.ages,
            )
        )
    )
    return Identity(parts, Projects(store, policy, clock), ApiKeys(store, signer, policy, clock))
