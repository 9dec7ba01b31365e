"""Registry and metering as processes under load, and the command line that saves and restores what they have."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from inferplane.metering.v1 import (
    api_key_pb2,
    api_key_service_pb2,
    project_pb2,
    project_service_pb2,
)
from inferplane.registry.v1 import model_service_pb2

from services.cli.adapters.backup_parts import Stores
from services.cli.adapters.backup_repository import BackupRepository
from services.metering.backup import MeteringPart
from services.registry.backup import RegistryPart
from services.rpc.backup_part import BackupPlace, StoreSettings, perform
from services.rpc.settings import environment_for_children, load
from tests.integration.metering import metering_process
from tests.integration.metering.metering_process import MeteringStubs
from tests.integration.metering.test_ledger_process import record, request_of
from tests.integration.registry.client import Client
from tests.models import good
from tests.postgres import Databases

SECONDS = 60
_MOST_PUSHES = 8  # each has a process read the model
_PAUSE = 0.01  # between batches of usage: load, not a flood
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where two services have their stores."""

    state: Path
    url: str = ""  # of Postgres, with {service} in it

    def of(self, service: str) -> str:
        """What INFERPLANE_STORE_URL of a service is."""
        return self.url.replace("{service}", service)


@contextmanager
def postgres_place(state: Path, databases: Databases) -> Iterator[Place]:
    """Two empty databases, and a state directory for what is not in them."""
    stem = f"backup_{os.getpid()}_{next(_numbers)}"
    made = [f"{stem}_{service}" for service in ("registry", "metering")]
    with psycopg.connect(databases.admin, autocommit=True) as connection:
        for name in made:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
    url = sa.make_url(databases.admin).set(database="NAME").render_as_string(hide_password=False)
    try:
        yield Place(state, url.replace("NAME", stem + "_{service}"))
    finally:
        with psycopg.connect(databases.admin, autocommit=True) as connection:
            for name in made:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@dataclass(frozen=True, slots=True)
class Services:
    """Both, running."""

    registry: Client
    metering: MeteringStubs
    processes: tuple[asyncio.subprocess.Process, ...]

    async def kill(self) -> None:
        """As a power cut would."""
        for process in self.processes:
            await metering_process.end(process, signal.SIGKILL)


async def _launch(service: str, place: Place, **variables: str) -> asyncio.subprocess.Process:
    given = {
        "state_dir": str(place.state),
        "store_url": place.of(service),
        "metrics_address": "",
        "drain_seconds": "5",
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"services.{service}"),
        env=environment_for_children(**given, **variables),
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def running(place: Place) -> AsyncIterator[Services]:
    """Both services on a place; they are killed at the end."""
    (place.state / "run").mkdir(parents=True, exist_ok=True)
    address = f"unix:{place.state}/run/registry.sock"
    registry = await _launch("registry", place, registry_address=address)
    metering = await _launch(
        "metering", place, metering_address=metering_process.address_of(place.state)
    )
    client = Client(address)
    async with AsyncExitStack() as stack:
        stubs = await stack.enter_async_context(metering_process.connected(place.state))
        services = Services(client, stubs, (registry, metering))
        try:
            ready = asyncio.ensure_future(client.channel.channel_ready())
            over = asyncio.ensure_future(registry.wait())
            await asyncio.wait([ready, over], timeout=SECONDS, return_when="FIRST_COMPLETED")
            assert ready.done(), f"registry: {registry.returncode}"
            over.cancel()
            await metering_process.serving(metering, stubs)
            yield services
        finally:
            await client.channel.close()
            await services.kill()


@dataclass
class Load:
    """Pushes and deletes some versions, and counts without end; remembers what was acknowledged."""

    versions: dict[str, bytes] = field(default_factory=dict)  # names of those that stay
    rows: int = 0
    busy: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, services: Services) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._push(services.registry))
            tasks.create_task(self._count(services.metering))

    async def _push(self, client: Client) -> None:
        for number in range(_MOST_PUSHES):
            content = good.affine(float(number))
            name = await client.push(f"m{number}@1", content)
            if number % 3 == 2:
                request = model_service_pb2.DeleteModelVersionRequest(name=name)
                await client.models.DeleteModelVersion(request)
            else:
                self.versions[name] = content
            if number >= 3:
                self.busy.set()

    async def _count(self, stubs: MeteringStubs) -> None:
        while True:
            self.rows = await record(stubs, request_of(self.rows, 7))
            await asyncio.sleep(_PAUSE)


async def make_key(stubs: MeteringStubs) -> str:
    """A project with one key; its token."""
    await stubs.projects.CreateProject(
        project_service_pb2.CreateProjectRequest(project=project_pb2.Project(name="projects/p"))
    )
    key = api_key_pb2.ApiKey(role=api_key_pb2.ROLE_CALLER, endpoints=["*"])
    request = api_key_service_pb2.CreateApiKeyRequest(parent="projects/p", api_key=key)
    return (await stubs.keys.CreateApiKey(request)).token


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said."""

    code: int
    out: Any  # JSON
    error: Any


async def backup(*words: str, repository: Path, place: Place | None = None) -> Answer:
    """`inferplane backup WORDS` with its output as JSON."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "backup", *words),
        *("--repository", str(repository), "--output", "json"),
        env=environment_for_children(
            **({"state_dir": str(place.state), "store_url": place.url} if place else {})
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    last = (err.decode().splitlines() or [""])[-1]
    return Answer(
        process.returncode,
        json.loads(out) if out else None,
        json.loads(last)["error"] if last.startswith("{") else err.decode(),
    )


@dataclass(frozen=True, slots=True)
class PartsHere:
    """The services' parts of a backup in this process, which saves starting theirs."""

    stores: Stores
    artifacts: Path

    def run(self, service: str, act: str, folder: Path) -> Any:
        """See `BackupParts`."""
        settings = load(
            StoreSettings,
            state_dir=self.stores.state_of(service),
            store_url=self.stores.url.replace("{service}", service),
            store_password_file=None,
        )
        part = RegistryPart(settings) if service == "registry" else MeteringPart(settings)
        answer = perform(act, part, BackupPlace(folder, self.artifacts), service)
        return json.loads(json.dumps(answer))


def parts_of(place: Place, repository: BackupRepository) -> PartsHere:
    """Those of two services on a place."""
    stores = Stores(state_dir=str(place.state), url=place.url, password_file="")
    return PartsHere(stores, repository.artifacts)


class Silence:
    """A Report that nobody reads."""

    def say(self, text: str) -> None: ...

    def begin(self, label: str, total: int, done: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def finish(self) -> None: ...
