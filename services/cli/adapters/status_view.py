"""What `status` shows on a terminal."""

from collections.abc import Iterable
from datetime import UTC, datetime

from inferplane.discovery.v1 import worker_pb2
from inferplane.registry.v1 import placement_pb2
from inferplane.router.v1 import router_service_pb2
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.cli.adapters import execution_view
from services.cli.adapters.deployment import state_word
from services.cli.adapters.status_reader import Status
from services.cli.domain.amounts import readable
from services.cli.domain.rates import Rate
from services.cli.domain.spans import readable_span
from services.cli.domain.split import short

_STYLES = {"ready": "green", "failed": "bold red", "draining": "yellow", "no worker": "yellow"}
_NONE = "–"


def render(status: Status) -> RenderableType:
    """All tables below each other; trouble first."""
    parts: list[RenderableType] = [Text(text, style="bold red") for text in status.problems]
    parts += _router_lines(status.router)
    parts += [
        _endpoints(status),
        _versions(status.placements),
        *_engines(status.workers),
        _workers(status.workers),
        *_untold(status.workers),
        *_usage(status),
    ]
    return Group(*parts)


def _table(title: str, headers: Iterable[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        expand=False,
    )
    for header in headers:
        right = header in {
            "SHARE",
            "NOW",
            "READY",
            "BATCH",
            "CALLS/S",
            "ERRORS/S",
            "MEAN",
            "IN FLIGHT",
            "RUNNING",
            "WAITING",
            "CACHE USED",
            "KEPT",
        }
        table.add_column(header, justify="right" if right else "left", header_style="dim")
    return table


def _endpoints(status: Status) -> RenderableType:
    headers = ("", "TARGET", "VERSION", "SHARE", "NOW", "READY", "CALLS/S", "ERRORS/S", "MEAN")
    table = _table("Endpoints (rates are those of the version)", headers)
    for endpoint in status.router.endpoints:
        name = Text(short(endpoint.name), style="bold")
        for target in endpoint.targets:
            table.add_row(name, *_target_cells(target, status.rates.get(target.version)))
            name = Text("")
        if endpoint.mirror_version:
            percent = status.mirror_percents.get(endpoint.name)
            share = "" if percent is None else f"{percent:g} %"
            table.add_row("", "mirror", Text(short(endpoint.mirror_version)), Text(share))
    if not status.router.endpoints:
        return Text("no endpoints; inferplane deploy MODEL@VERSION makes one", style="dim")
    return table


def _target_cells(target: router_service_pb2.TargetStatus, rate: Rate | None) -> list[Text]:
    moved = abs(target.declared_share - target.effective_share) > 1e-9
    return [
        Text(short(target.target)),
        Text(short(target.version)),
        Text(f"{target.declared_share * 100:.4g} %"),
        Text(f"{target.effective_share * 100:.4g} %", style="yellow" if moved else ""),
        Text(str(target.ready_workers), style="" if target.ready_workers else "bold red"),
        *_rate_cells(rate),
    ]


def _rate_cells(rate: Rate | None) -> list[Text]:
    if rate is None:
        return [Text(_NONE)] * 3
    return [
        Text(f"{rate.calls_per_second:.1f}"),
        Text(f"{rate.errors_per_second:.1f}", style="bold red" if rate.errors_per_second else ""),
        Text(_NONE if rate.mean_ms is None else f"{rate.mean_ms:.2f} ms"),
    ]


def _versions(placements: list[placement_pb2.Placement]) -> RenderableType:
    headers = ("", "POOL", "STATE", "READY", "BATCH", "THREADS", "REASON")
    table = _table("Versions (threads: instances × threads of each)", headers)
    for placement in placements:
        status = placement.status
        words = sorted({state_word(worker.state) for worker in status.workers}) or ["no worker"]
        state = Text(", ").join(Text(word, style=_STYLES.get(word, "")) for word in words)
        table.add_row(
            Text(short(placement.version)),
            Text(placement.name.split("/")[1]),
            state,
            Text(f"{status.ready_workers}/{status.live_workers}"),
            Text(execution_view.batch_of(status)),
            Text(execution_view.threads_of(status)),
            _reason(execution_view.failures_of(status), execution_view.notes_of(status)),
        )
    return table if placements else Text("no version is placed", style="dim")


def _reason(failures: list[str], notes: list[str]) -> Text:
    return Text("; ").join(
        (*(Text(text, "red") for text in failures), *(Text(text, "yellow") for text in notes))
    )


def _engines(workers: list[worker_pb2.Worker]) -> list[RenderableType]:
    """How busy the engines of language models are; nothing where there are none."""
    headers = ("", "WORKER", "RUNNING", "WAITING", "CACHE USED", "KEPT")
    table = _table("Engines of language models (cache: keys and values of tokens)", headers)
    for worker in workers:
        for held in worker.versions:
            if held.HasField("engine"):
                table.add_row(
                    Text(short(held.version)),
                    Text(short(worker.name)),
                    Text(str(held.engine.running)),
                    Text(str(held.engine.waiting), "yellow" if held.engine.waiting else ""),
                    Text(_share(held.engine.used_blocks, held.engine.blocks)),
                    Text(_share(held.engine.cached_blocks, held.engine.blocks)),
                )
    return [table] if table.row_count else []


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else _NONE


def _workers(workers: list[worker_pb2.Worker]) -> RenderableType:
    table = _table("Workers", ("", "POOL", "STATE", "IN FLIGHT", "VERSIONS", "AGE", "ADDRESS"))
    for worker in workers:
        state = "draining" if worker.draining else "live"
        held = [f"{short(v.version)} {state_word(v.state)}" for v in worker.versions]
        table.add_row(
            Text(short(worker.name)),
            Text(f"{worker.pool}, zone {worker.zone}" if worker.zone else worker.pool),
            Text(state, style=_STYLES.get(state, "")),
            Text(_in_flight(worker)),
            Text(", ".join(held)),
            Text(age(worker, datetime.now(UTC))),
            Text(worker.address),
        )
    return table if workers else Text("no worker is live; inferplane worker runs one", style="red")


def _untold(workers: list[worker_pb2.Worker]) -> list[RenderableType]:
    """What workers can't tell discovery: nobody is routed to it."""
    return [
        Text(f"{short(worker.name)} does not tell {worker.untold}", style="red")
        for worker in workers
        if worker.untold
    ]


def _in_flight(worker: worker_pb2.Worker) -> str:
    """Nothing where discovery keeps no leases of its own (Consul): it is not told with each beat then."""
    return str(worker.in_flight) if worker.HasField("expire_time") else _NONE


def _usage(status: Status) -> list[RenderableType]:
    """What metering has counted today; nothing where it can't be read, which is among the problems."""
    if status.today is None:
        return []
    total = status.today.total
    charged = f", charged {readable(total.charged) or '0'} {status.today.currency}"
    return [
        Text(f"Today (UTC) {total.requests:,} requests counted{charged}; more: inferplane usage")
    ]


def age(worker: worker_pb2.Worker, now: datetime) -> str:
    """How long a worker runs, in its two largest units."""
    if not worker.HasField("start_time"):
        return ""
    return readable_span(int(now.timestamp() - worker.start_time.seconds))


def _router_lines(router: router_service_pb2.GetStatusResponse) -> list[RenderableType]:
    lines: list[RenderableType] = []
    are_several = len(router.routers) > 1
    if are_several:
        for one in router.routers:
            lines += _trouble_of(one, f"router {one.address}")
    else:
        lines += _trouble_of(router, "the router")
    for envoy in router.envoys:
        sync = Text("in sync", "green") if envoy.in_sync else Text("not in sync", "bold red")
        at = f", told by router {envoy.router}" if are_several else ""
        nacks = f", {envoy.nack_count} refused" if envoy.nack_count else ""
        lines.append(Text.assemble("Envoy ", envoy.node_id, " ", sync, nacks, at))
        if envoy.nack_count and envoy.HasField("last_nack"):
            nack = envoy.last_nack
            kind = nack.type_url.rpartition(".")[2]
            at = nack.time.ToDatetime(UTC).astimezone().strftime("%H:%M:%S")
            lines.append(Text(f"  last refusal ({kind}, {at}): {nack.message}", style="red"))
    return lines


def _trouble_of(
    router: router_service_pb2.GetStatusResponse | router_service_pb2.RouterStatus, named: str
) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if router.refused_snapshot:
        text = f"{named} does not publish the newest topology: {router.refused_snapshot}"
        lines.append(Text(text, style="bold red"))
    for peer, connected in (
        ("registry", router.registry_connected),
        ("discovery", router.discovery_connected),
    ):
        if router.snapshot_version and not connected:
            lines.append(Text(f"{named} has lost the {peer}", style="yellow"))
    return lines
