"""The use cases of identity on the store in memory, a clock moved by hand, and keys in a folder."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import jwt

from services.metering.adapters.admin_token_file import AdminTokenFile
from services.metering.adapters.memory_identity import MemoryIdentityStore
from services.metering.adapters.signing_files import SigningFiles
from services.metering.domain.policy import Fact, FactKey
from services.metering.drivers.api_keys import ApiKeys
from services.metering.drivers.first_admin import FirstAdmin, Secrets
from services.metering.drivers.policy import Policy
from services.metering.drivers.projects import Projects
from services.metering.drivers.signing import Signing
from services.metering.ports.identity_store import IdentityStore
from tests.manual_clock import ManualClock

FIRST = 1000


class IdentityWorld:
    """Everything but the network. `reopened` is the same after a restart."""

    def __init__(
        self,
        folder: Path,
        clock: ManualClock | None = None,
        store: IdentityStore | None = None,
    ) -> None:
        self.folder = folder
        self.clock = clock or ManualClock()
        self.store = store or MemoryIdentityStore()
        self.signer = SigningFiles(folder / "signing")
        self.policy = Policy(self.clock, first_revision=FIRST)
        self.signing = Signing(self.store, self.signer, self.policy, self.clock)
        self.projects = Projects(self.store, self.policy, self.clock)
        self.keys = ApiKeys(self.store, self.signer, self.policy, self.clock)
        self.admin_file = AdminTokenFile(folder / "admin.key")
        secrets = Secrets(self.signer, self.admin_file)
        self.first_admin = FirstAdmin(self.store, secrets, self.policy, self.clock)

    async def start(self) -> None:
        await self.policy.load(self.store)
        await self.signing.start()
        await self.first_admin.ensure()

    async def reopened(self) -> "IdentityWorld":
        """A new process on what the old one left."""
        world = IdentityWorld(self.folder, self.clock, self.store)
        await world.start()
        return world

    async def facts(self) -> dict[FactKey, Fact | None]:
        """What a new reader is told."""
        news = await anext(self.policy.follow(0))
        return {change.key: change.fact for change in news.changes}

    def pem_files(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "signing").glob("*.pem"))

    @asynccontextmanager
    async def clock_runs(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.policy.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


def unverified(token: str) -> dict[str, object]:
    claims: dict[str, object] = jwt.decode(token, options={"verify_signature": False})
    return claims
