"""The metering process: reads settings, builds the areas, serves until SIGTERM or SIGINT."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from services.metering import budgets, identity, ledger
from services.metering.adapters.database import Database
from services.metering.adapters.news import left_behind
from services.metering.adapters.shared_folder import require_shared
from services.metering.area import Area, Surroundings
from services.metering.drivers.old_news import OldNews
from services.metering.settings import MeteringSettings
from services.rpc import address as addresses
from services.rpc import peers, state_folder, state_lock
from services.rpc.clock import SystemClock
from services.rpc.completion import done_before
from services.rpc.errors import FailedPreconditionError, InferplaneError
from services.rpc.metrics import MetricsInterceptor
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer, stop_requested
from services.rpc.settings import SettingsError, load
from services.rpc.telemetry import configure_logs, serve_metrics
from services.rpc.tls import Security

if TYPE_CHECKING:
    from services.rpc.postgres import Target

_LEAST_MESSAGE_BYTES = 8 * 1024 * 1024  # what pages, watch responses and batches of usage need
# Who may call over TLS: the edge, for callers whose keys it has checked; the others have services of their own.
_CALLERS = frozenset({PeerKind.EDGE, PeerKind.SERVICE})
_CALLERS_OF = {
    "grpc.health.v1.Health": _CALLERS | {PeerKind.WORKER},
    "inferplane.metering.v1.PolicyService": frozenset({PeerKind.SERVICE}),
    "inferplane.metering.v1.UsageService": frozenset({PeerKind.WORKER}),
    "inferplane.metering.v1.LeaseService": frozenset({PeerKind.WORKER}),
}


def _refuse_open_port(settings: MeteringSettings, security: Security) -> None:
    """Whoever reaches metering makes keys: no plain TCP, not even for this machine's other users, unless asked for."""
    address = addresses.parse(settings.metering_address)
    if address.path is None and security.files is None and not security.insecure_tcp:
        raise FailedPreconditionError(
            f"metering would listen on {address} for anybody; set INFERPLANE_METERING_ADDRESS to"
            " unix:/path, or INFERPLANE_TLS_DIR to a folder with a certificate, or"
            " INFERPLANE_INSECURE_TCP=1",
            reason="PLAIN_TCP",
            metadata={"address": str(address)},
        )


def _shared_store(settings: MeteringSettings) -> "Target | None":
    """The Postgres that is to be used, if any; SettingsError if it is nothing that is known."""
    url = settings.store_url
    if not url or url == "memory:" or url.startswith("sqlite:"):
        return None  # these are the registry's, which has the same variable
    # The driver takes its time to import; who needs none begins at once.
    from services.rpc import postgres

    found = postgres.target(url, settings.store_password_file, "metering")
    if found is None:
        raise SettingsError(
            f"INFERPLANE_STORE_URL={url!r}: unknown; allowed: postgresql://user@host:port/database"
        )
    return found


@asynccontextmanager
async def surroundings(
    settings: MeteringSettings, metrics: CollectorRegistry
) -> AsyncIterator[Surroundings]:
    """The open database and its folder: this process's alone, or the one of all processes on a shared database."""
    shared = _shared_store(settings)
    folder = settings.state_dir.absolute() / "metering"
    state_folder.prepare(folder)
    with ExitStack() as stack:
        if shared is None:
            stack.enter_context(state_lock.held(folder / "metering.lock", "metering"))
        async with Database.open(shared or folder / "metering.db") as database:
            await require_shared(database, folder)
            yield Surroundings(
                settings=settings,
                database=database,
                clock=SystemClock(),
                metrics=metrics,
                folder=folder,
            )


def build(around: Surroundings) -> Sequence[Area]:
    """All areas, each after what it needs; they start in this order."""
    people = identity.build(around)
    money = ledger.build(around, people.projects, people.tags)
    return [people, money, budgets.build(around, people.projects, money.prices)]


async def _follow(database: Database, server: RpcServer, areas: Sequence[Area]) -> None:
    """Serve while it is known what other processes write: one that is cut off would tell of what is long over."""

    async def lost() -> None:
        await server.set_health("", serving=False)
        for area in areas:
            area.interrupt()

    async def found() -> None:
        await server.set_health("", serving=True)

    await database.run(lost, found)


def _nothing() -> None:
    """What is done after the start by default."""


async def serve(
    settings: MeteringSettings,
    stop: asyncio.Event,
    metrics: CollectorRegistry = REGISTRY,
    started: Callable[[], None] = _nothing,
) -> None:
    """Serve until `stop` is set, then finish what runs. UnavailableError if this process is left behind by others.

    Args:
        settings: of the process.
        stop: ends it.
        metrics: where they are declared.
        started: is called once all that was stored is loaded.
    """
    security = settings.security()
    _refuse_open_port(settings, security)
    async with surroundings(settings, metrics) as around:
        areas = build(around)
        for area in areas:
            await area.start()
        started()
        serve_metrics(settings.metrics_address)
        server = RpcServer(
            address=settings.metering_address,
            max_message_bytes=max(settings.max_message_bytes, _LEAST_MESSAGE_BYTES),
            interceptors=[MetricsInterceptor(metrics)],
            security=security,
            guard=peers.guard(settings.metering_address, security, _CALLERS, _CALLERS_OF),
        )
        for area in areas:
            area.register(server.grpc)
        await server.start([name for area in areas for name in area.services])
        async with asyncio.TaskGroup() as background:
            tasks = [background.create_task(area.run()) for area in areas]
            tasks.append(background.create_task(_follow(around.database, server, areas)))
            if around.database.process is not None:
                forgetting = OldNews(around.database, around.clock).run()
                tasks.append(background.create_task(forgetting))
            await server.set_health("", serving=True)
            behind = asyncio.create_task(around.database.left_behind())
            is_behind = await done_before(stop, behind)
            for area in areas:
                area.close()
            await server.stop(settings.drain_seconds)
            for task in tasks:
                task.cancel()
    if is_behind:
        raise left_behind()


def _spare_what_was_loaded() -> None:
    """What was loaded lives as long as the process: looking through it for garbage would hold up all callers."""
    gc.collect()
    gc.freeze()


async def _run(settings: MeteringSettings) -> None:
    """Serve. Who is asked to stop before all is loaded, as while a database is waited for, ends at once."""
    stop, loaded = stop_requested(), asyncio.Event()

    def started() -> None:
        _spare_what_was_loaded()
        loaded.set()

    serving = asyncio.create_task(serve(settings, stop, started=started))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if loaded.is_set() or serving.done():
        await serving
    else:
        serving.cancel()
        await asyncio.wait([serving])


def main() -> int:
    """Run the process; returns its exit code."""
    try:
        settings = load(MeteringSettings)
        configure_logs(service="metering", level=settings.log_level, style=settings.log_style)
        asyncio.run(_run(settings))
    except (InferplaneError, SettingsError) as error:
        sys.stderr.write(f"metering: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
