"""The area of identity: projects, API keys, what signs them, and what the edge must know of all that."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from services.metering.adapters.oidc_source import OidcSource


@dataclass(frozen=True, slots=True)
class _Trusted:
    """Others whose tokens are believed, if there are any."""

    issuers: Issuers | None = None
    source: "OidcSource | None" = None

    def ages(self) -> Mapping[str, float]:
        return self.issuers.ages() if self.issuers is not None else {}

    async def run(self) -> None:
        if self.issuers is not None:
            await self.issuers.run()

    async def close(self) -> None:
        if self.source is not None:
            await self.source.close()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the area is made of."""

    store: SqlIdentityStore
    policy: Policy
    signing: Signing
    first_admin: FirstAdmin
    counts: KeyCounts
    trusted: _Trusted


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
                tasks.create_task(parts.trusted.run())
        finally:
            await parts.trusted.close()

    def interrupt(self) -> None:
        self._parts.policy.interrupt()

    def close(self) -> None:
        self._parts.policy.close()


def _trusted(around: Surroundings, policy: Policy) -> _Trusted:
    settings = around.settings
    if not settings.oidc_issuers and settings.oidc_ca_file is None:
        return _Trusted()
    # A client of HTTP takes its time to import and to read whom it trusts; who needs none begins at once.
    from services.metering.adapters.oidc_source import OidcSource

    source = OidcSource(settings.oidc_ca_file)
    issuers = [issuer.trusted() for issuer in settings.oidc_issuers]
    return _Trusted(Issuers(issuers, source, policy, around.clock), source)


def build(around: Surroundings) -> Identity:
    """Put the area together."""
    store, clock = SqlIdentityStore(around.database), around.clock
    signer = SigningFiles(around.folder / "signing")
    revision = first_revision(time.time_ns() // 1000, around.database.process)
    policy = Policy(clock, first_revision=revision)
    admin_file = AdminTokenFile(around.settings.state_dir.absolute() / "admin.key")
    parts = _Parts(
        store=store,
        policy=policy,
        signing=Signing(store, signer, policy, clock),
        first_admin=FirstAdmin(store, Secrets(signer, admin_file), policy, clock),
        counts=KeyCounts(store, clock),
        trusted=_trusted(around, policy),
    )
    around.metrics.register(
        IdentityMetrics(
            Gauges(
                keys=lambda: parts.counts.last,
                facts=lambda: len(policy),
                watchers=lambda: policy.readers,
                issuer_ages=parts.trusted.ages,
            )
        )
    )
    return Identity(parts, Projects(store, policy, clock), ApiKeys(store, signer, policy, clock))
